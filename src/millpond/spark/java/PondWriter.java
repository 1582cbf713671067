package millpond.spark;

import java.util.function.BiFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/** Writes frames and makes sinks for format("millpond"): Python does both. */
public class PondWriter implements CreatableRelationProvider, StreamSinkProvider {
  /** Python: (question, session, options and what else it takes) writes, or gives what steers a sink. */
  private final BiFunction opening;

  public PondWriter(BiFunction opening) {
    this.opening = opening;
  }

  public BaseRelation createRelation(SQLContext context, SaveMode mode, Map options, Dataset data) {
    Object[] asking = new Object[] {context.sparkSession(), PondProvider.text(options), mode.name(), data};
    Answers.checked(opening.apply("write", asking));
    return new Written(context, data.schema());
  }

  public Sink createSink(SQLContext context, Map options, Seq columns, OutputMode mode) {
    Object[] asking = new Object[] {
      context.sparkSession(), PondProvider.text(options), mode.toString(), columns.mkString(", ")
    };
    return new PondSink((BiFunction) Answers.checked(opening.apply("sink", asking)));
  }

  /** What Spark wants back, and does not look at. */
  public static class Written extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    public Written(SQLContext context, StructType schema) {
      this.context = context;
      this.schema = schema;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }
  }
}
