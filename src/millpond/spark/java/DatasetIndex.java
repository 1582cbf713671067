package millpond.spark;

import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * The files of a data set. A pinned one has a list of them, and is told the whole condition that stands on the scan:
 * Spark's strategy for files hands on only terms that are about partitions or about rows, not those that mix both.
 */
public class DatasetIndex extends PondIndex {
  private final long bytes;
  private final StructType partitions;
  private final PinnedFiles pinned;
  /** As ExpressionText writes it; "[]" for none. */
  private final String condition;

  public DatasetIndex(
      String key, String name, long bytes, StructType partitions, PinnedFiles pinned, String condition) {
    super(key, name);
    this.bytes = bytes;
    this.partitions = partitions;
    this.pinned = pinned;
    this.condition = condition;
  }

  public boolean open() {
    return pinned == null;
  }

  public DatasetIndex pin(PinnedFiles files) {
    return new DatasetIndex(key, name, bytes, partitions, files, condition);
  }

  public boolean conditioned() {
    return !condition.equals("[]");
  }

  /** @param condition holds for every row that the query will keep of this scan */
  public DatasetIndex where(Seq condition) {
    return new DatasetIndex(key, name, bytes, partitions, pinned, ExpressionText.write(condition));
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    check();
    String left = java.util.Base64.getEncoder().encodeToString(pinned.files.left(partitionFilters, dataFilters));
    String asked = condition + '\0' + ExpressionText.write(partitionFilters) + '\0' + ExpressionText.write(dataFilters);
    return pinned.files.select((byte[]) Answers.checked(pinned.steering.apply(left, asked)));
  }

  private void check() {
    if (pinned == null) {
      throw new IllegalArgumentException("Millpond does not know the session that reads the data set " + name
          + ". Make the DataFrame or the view in this very session (to_spark, attach).");
    }
  }

  public Seq rootPaths() {
    return pinned == null ? (Seq) Nil$.MODULE$ : pinned.files.listed().rootPaths();
  }

  public String[] inputFiles() {
    return pinned == null ? new String[0] : pinned.files.listed().inputFiles();
  }

  public long sizeInBytes() {
    return pinned == null ? bytes : pinned.files.listed().sizeInBytes();
  }

  public StructType partitionSchema() {
    return partitions;
  }

  /** Spark re-uses an exchange or a cached result where relations are equal. */
  public boolean equals(Object other) {
    if (!(other instanceof DatasetIndex)) return false;
    DatasetIndex that = (DatasetIndex) other;
    return key.equals(that.key) && pinned == that.pinned && condition.equals(that.condition);
  }

  public int hashCode() {
    return key.hashCode() + 3;
  }
}
