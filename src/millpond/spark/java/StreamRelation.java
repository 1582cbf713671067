package millpond.spark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/**
 * A whole stream, as spark.read.format("millpond") gives it: Spark wants one relation there. It is always open; the
 * SnapshotRule replaces it by its two halves, pinned.
 */
public class StreamRelation extends BaseRelation {
  private final String key;
  private final String name;
  private final ObjectTable known;
  private final SparkSession session;
  private final StructType schema;
  private final java.util.Map options;

  public StreamRelation(
      String key, String name, ObjectTable known, SparkSession session, StructType schema, java.util.Map options) {
    this.key = key;
    this.name = name;
    this.known = known;
    this.session = session;
    this.schema = schema;
    this.options = options;
  }

  public String key() {
    return key;
  }

  public BaseRelation settled(PinnedStream stream) {
    return new HadoopFsRelation(new SettledIndex(key, name, stream.objects, stream), new StructType(), schema,
        scala.Option.empty(), stream.objects.format(),
        org.apache.spark.api.python.PythonUtils.toScalaMap(options), session);
  }

  public BaseRelation live(PinnedStream stream) {
    return new LiveRelation(key, name, session.sqlContext(), schema, stream);
  }

  public SQLContext sqlContext() {
    return session.sqlContext();
  }

  public StructType schema() {
    return schema;
  }

  public long sizeInBytes() {
    return Math.max(1L, known.bytes());
  }

  public String toString() {
    return "Millpond(" + name + ")";
  }

  public boolean equals(Object other) {
    if (!(other instanceof StreamRelation)) return false;
    StreamRelation that = (StreamRelation) other;
    return key.equals(that.key) && schema.equals(that.schema) && session == that.session;
  }

  public int hashCode() {
    return key.hashCode() + 2;
  }
}
