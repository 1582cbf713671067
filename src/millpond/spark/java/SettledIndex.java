package millpond.spark;

import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** The settled half of a stream. A pinned one has the objects of a version. */
public class SettledIndex extends PondIndex {
  /** What was there when the DataFrame was made: for estimates only. */
  private final ObjectTable known;
  private final PinnedStream pinned;
  private final StructType none = new StructType();

  public SettledIndex(String key, String name, ObjectTable known, PinnedStream pinned) {
    super(key, name);
    this.known = known;
    this.pinned = pinned;
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

  public long sizeInBytes() {
    return known.bytes();
  }

  public StructType partitionSchema() {
    return none;
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
