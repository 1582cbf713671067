package millpond.spark;

import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The settled half of a stream, as Spark's planner asks for it. In a DataFrame it is open (it names a stream); the
 * SnapshotRule replaces it by a pinned one (it names the objects of a version) when a query is optimised.
 */
public class SettledIndex implements FileIndex {
  private final String key;
  private final String name;
  /** What was there when the DataFrame was made: for estimates only. */
  private final ObjectTable known;
  private final PinnedStream pinned;
  private final StructType none = new StructType();

  public SettledIndex(String key, String name, ObjectTable known, PinnedStream pinned) {
    this.key = key;
    this.name = name;
    this.known = known;
    this.pinned = pinned;
  }

  public String key() {
    return key;
  }

  public boolean open() {
    return pinned == null;
  }

  public SettledIndex pin(PinnedStream stream) {
    return new SettledIndex(key, name, stream.objects, stream);
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    PinnedStream.check(pinned, name);
    Object found = pinned.steering.apply("objects", ExpressionText.write(dataFilters));
    return pinned.objects.select((byte[]) Answers.checked(found));
  }

  public Seq rootPaths() {
    return known.roots();
  }

  public String[] inputFiles() {
    return known.all();
  }

  public void refresh() {}

  public long sizeInBytes() {
    return known.bytes();
  }

  public StructType partitionSchema() {
    return none;
  }

  public scala.Option metadataOpsTimeNs() {
    return scala.Option.empty();
  }

  public boolean isTimeTravel() {
    return false;
  }

  public String toString() {
    return "Millpond(" + name + ")";
  }

  /** Spark re-uses an exchange or a cached result where relations are equal. */
  public boolean equals(Object other) {
    if (!(other instanceof SettledIndex)) return false;
    SettledIndex that = (SettledIndex) other;
    return key.equals(that.key) && pinned == that.pinned;
  }

  public int hashCode() {
    return key.hashCode();
  }
}
