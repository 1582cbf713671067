package millpond.spark;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CatalystScan;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The live half of a stream: Spark says which columns and rows it needs, Python answers with an RDD that fetches them
 * from the node. Open until the SnapshotRule pins it, like SettledIndex.
 */
public class LiveRelation extends BaseRelation implements CatalystScan {
  private final String key;
  private final String name;
  private final SQLContext context;
  private final StructType schema;
  private final PinnedStream pinned;

  public LiveRelation(String key, String name, SQLContext context, StructType schema, PinnedStream pinned) {
    this.key = key;
    this.name = name;
    this.context = context;
    this.schema = schema;
    this.pinned = pinned;
  }

  public String key() {
    return key;
  }

  public boolean open() {
    return pinned == null;
  }

  public LiveRelation pin(PinnedStream stream) {
    return new LiveRelation(key, name, context, schema, stream);
  }

  public RDD buildScan(Seq columns, Seq predicates) {
    PinnedStream.check(pinned, name);
    StringBuilder wanted = new StringBuilder();
    for (int i = 0; i < columns.size(); i++) wanted.append(((Attribute) columns.apply(i)).name()).append('\0');
    Object found = pinned.steering.apply("live", wanted.append(ExpressionText.write(predicates)).toString());
    return (RDD) Answers.checked(found);
  }

  public SQLContext sqlContext() {
    return context;
  }

  public StructType schema() {
    return schema;
  }

  /** The RDD holds Spark's internal rows. */
  public boolean needConversion() {
    return false;
  }

  public long sizeInBytes() {
    return pinned == null ? super.sizeInBytes() : Math.max(1L, pinned.liveRows) * schema.defaultSize();
  }

  public String toString() {
    return "Millpond(" + name + ", live)";
  }

  public boolean equals(Object other) {
    if (!(other instanceof LiveRelation)) return false;
    LiveRelation that = (LiveRelation) other;
    return key.equals(that.key) && pinned == that.pinned && schema.equals(that.schema);
  }

  public int hashCode() {
    return key.hashCode() + 1;
  }
}
