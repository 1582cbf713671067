package millpond.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * The objects of one version of a stream's archive. Loaded from one string, because building JVM objects one by one
 * from Python takes a millisecond each; full paths and file statuses are made only for what a query reads.
 */
public class ObjectTable {
  /** How Spark thinks of a file's blocks; it only matters where blocks have hosts, which local objects do not. */
  private static final long BLOCK_BYTES = 134217728L;

  private final String root;
  private final String[] paths;
  private final long[] sizes;
  private final long total;
  private final Set doubtful;

  /**
   * @param blob size and path of each object in turn, all parted by NUL, which no path can hold
   * @param doubtful columns that may hold NaN, parted in the same way
   */
  public ObjectTable(String root, String blob, String doubtful) {
    this.root = root;
    this.doubtful = new HashSet(Arrays.asList(doubtful.isEmpty() ? new String[0] : doubtful.split("\0")));
    String[] parts = blob.isEmpty() ? new String[0] : blob.split("\0");
    int count = parts.length / 2;
    this.paths = new String[count];
    this.sizes = new long[count];
    long sum = 0L;
    for (int i = 0; i < count; i++) {
      sizes[i] = Long.parseLong(parts[2 * i]);
      paths[i] = parts[2 * i + 1];
      sum += sizes[i];
    }
    this.total = sum;
  }

  public long bytes() {
    return total;
  }

  /** Spark's own reader, but for what it would skip wrongly. */
  public FileFormat format() {
    return new CarefulParquet(doubtful);
  }

  public Seq roots() {
    java.util.ArrayList roots = new java.util.ArrayList();
    roots.add(new Path(root));
    return PythonUtils.toSeq(roots);
  }

  /** Path(String) takes a path as it is, not as a URL, and quotes what a URL would misread. */
  private Path path(int i) {
    return new Path(root + "/" + paths[i]);
  }

  public String[] all() {
    String[] found = new String[paths.length];
    for (int i = 0; i < paths.length; i++) found[i] = path(i).toString();
    return found;
  }

  /** @param keep a bit per object, least significant first */
  public Seq select(byte[] keep) {
    Map none = (Map) scala.collection.immutable.Map$.MODULE$.empty();
    java.util.ArrayList files = new java.util.ArrayList();
    for (int i = 0; i < paths.length; i++) {
      if ((keep[i >> 3] & (1 << (i & 7))) != 0) {
        FileStatus status = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, 0L, path(i));
        files.add(new FileStatusWithMetadata(status, none));
      }
    }
    java.util.ArrayList directories = new java.util.ArrayList();
    directories.add(new PartitionDirectory(InternalRow.empty(), PythonUtils.toSeq(files)));
    return PythonUtils.toSeq(directories);
  }
}
