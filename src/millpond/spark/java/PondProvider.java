package millpond.spark;

import java.util.HashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;

/** Makes sources and relations for format("millpond"): options go to Python, which answers with what it takes to make one. */
public class PondProvider implements StreamSourceProvider, RelationProvider {
  /** How many sets of options are remembered: those of queries that are started soon after they are loaded. */
  private static final int LOADED_MAX = 256;

  /** Python: (question, session and options) gives a schema as JSON, what steers a source, or a relation. */
  private final BiFunction opening;
  /**
   * The schema that a frame with such options was loaded with last: its query keeps it, also if columns are added before
   * it is started. Spark refuses to start an older frame, whose columns are fewer.
   */
  private final HashMap loaded = new HashMap();

  public PondProvider(BiFunction opening) {
    this.opening = opening;
  }

  public Tuple2 sourceSchema(SQLContext context, Option schema, String name, Map options) {
    if (schema.isDefined()) {
      throw new IllegalArgumentException("Millpond: a stream has a schema; leave .schema(...) out and select columns");
    }
    StructType found = current(context, options);
    synchronized (loaded) {
      if (loaded.size() >= LOADED_MAX) loaded.clear();
      loaded.put(options, found);
    }
    return new Tuple2("millpond", found);
  }

  public Source createSource(SQLContext context, String checkpoint, Option schema, String name, Map options) {
    StructType found;
    synchronized (loaded) {
      found = (StructType) loaded.get(options);
    }
    if (found == null) found = current(context, options);
    BiFunction steering = (BiFunction) ask(context, "source", options);
    return new PondSource((SparkSession) context.sparkSession(), found, checkpoint, steering);
  }

  public BaseRelation createRelation(SQLContext context, Map options) {
    return (BaseRelation) ask(context, "relation", options);
  }

  private StructType current(SQLContext context, Map options) {
    return (StructType) DataType.fromJson((String) ask(context, "schema", options));
  }

  private Object ask(SQLContext context, String question, Map options) {
    return Answers.checked(opening.apply(question, new Object[] {context.sparkSession(), text(options)}));
  }

  /** Names and values in turn, parted by NUL. */
  public static String text(Map options) {
    StringBuilder out = new StringBuilder();
    for (scala.collection.Iterator each = options.iterator(); each.hasNext();) {
      Tuple2 pair = (Tuple2) each.next();
      out.append(pair._1()).append('\0').append(pair._2()).append('\0');
    }
    return out.toString();
  }
}
