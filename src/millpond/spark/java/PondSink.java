package millpond.spark;

import java.util.function.BiFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.Sink;

/** A stream as the sink of a streaming query. Python writes each batch, known by the query's id and its own number. */
public class PondSink implements Sink {
  /** Where Spark says which query a thread works for. */
  private static final String QUERY = "sql.streaming.queryId";

  /** Python: (query and number of the batch, the batch) gives nothing. */
  private final BiFunction steering;

  public PondSink(BiFunction steering) {
    this.steering = steering;
  }

  /** The batch's rows are taken as they come: a batch may be planned once only. */
  public void addBatch(long number, Dataset data) {
    org.apache.spark.sql.classic.Dataset batch = (org.apache.spark.sql.classic.Dataset) data;
    SparkSession session = (SparkSession) batch.sparkSession();
    RDD rows = batch.queryExecution().toRdd();
    String query = session.sparkContext().getLocalProperty(QUERY);
    Dataset plain = session.internalCreateDataFrame(rows, batch.schema(), false);
    Answers.checked(steering.apply(query + " " + number, plain));
  }

  public String toString() {
    return "millpond";
  }
}
