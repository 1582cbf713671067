package millpond.spark;

import java.util.ArrayList;
import java.util.HashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * The files of a data set at one moment, as Spark lists them (hidden and empty ones left out, partitions typed), and
 * numbered, so that Python can speak of them by number.
 */
public class FileList {
  private final FileIndex listed;
  private final Seq directories;
  private final HashMap numbers = new HashMap();
  private final ArrayList files = new ArrayList();

  /** @param relation what Spark has resolved from a path */
  public FileList(HadoopFsRelation relation) {
    this.listed = relation.location();
    Seq none = (Seq) Nil$.MODULE$;
    this.directories = listed.listFiles(none, none);
    for (int i = 0; i < directories.size(); i++) {
      Seq held = ((PartitionDirectory) directories.apply(i)).files();
      for (scala.collection.Iterator each = held.iterator(); each.hasNext();) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) each.next();
        numbers.put(file.getPath(), Integer.valueOf(files.size()));
        files.add(file);
      }
    }
  }

  /** Of each file in turn the number of its partition, its size, its time in milliseconds and its path; parted by NUL. */
  public String text() {
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < directories.size(); i++) {
      Seq held = ((PartitionDirectory) directories.apply(i)).files();
      for (scala.collection.Iterator each = held.iterator(); each.hasNext();) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) each.next();
        if (out.length() > 0) out.append('\0');
        out.append(i).append('\0').append(file.getLen()).append('\0').append(file.getModificationTime()).append('\0');
        out.append(file.getPath().toString());
      }
    }
    return out.toString();
  }

  /** Of each partition in turn the values of its columns, as ExpressionText writes literals; parted by NUL. */
  public String partitions() {
    StructType columns = listed.partitionSchema();
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < directories.size(); i++) {
      InternalRow values = ((PartitionDirectory) directories.apply(i)).values();
      ArrayList literals = new ArrayList();
      for (int at = 0; at < columns.length(); at++) {
        literals.add(new Literal(values.get(at, columns.apply(at).dataType()), columns.apply(at).dataType()));
      }
      if (i > 0) out.append('\0');
      out.append(ExpressionText.write(PythonUtils.toSeq(literals)));
    }
    return out.toString();
  }

  public int size() {
    return files.size();
  }

  public FileIndex listed() {
    return listed;
  }

  /** Which files Spark itself leaves by these filters: a bit per file, least significant first. */
  public byte[] left(Seq partitionFilters, Seq dataFilters) {
    byte[] bits = new byte[(files.size() + 7) / 8];
    Seq found = listed.listFiles(partitionFilters, dataFilters);
    for (int i = 0; i < found.size(); i++) {
      Seq held = ((PartitionDirectory) found.apply(i)).files();
      for (scala.collection.Iterator each = held.iterator(); each.hasNext();) {
        Integer number = (Integer) numbers.get(((FileStatusWithMetadata) each.next()).getPath());
        if (number != null) bits[number.intValue() >> 3] |= (byte) (1 << (number.intValue() & 7));
      }
    }
    return bits;
  }

  /** The chosen files, in their partitions. */
  public Seq select(byte[] keep) {
    ArrayList chosen = new ArrayList();
    int number = 0;
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.apply(i);
      ArrayList held = new ArrayList();
      for (int at = 0; at < directory.files().size(); at++) {
        if (kept(keep, number)) held.add(files.get(number));
        number++;
      }
      if (!held.isEmpty()) chosen.add(new PartitionDirectory(directory.values(), PythonUtils.toSeq(held)));
    }
    return PythonUtils.toSeq(chosen);
  }

  /** The chosen files, each in a partition whose one value is the file's number. */
  public Seq numbered(byte[] keep) {
    ArrayList chosen = new ArrayList();
    for (int i = 0; i < files.size(); i++) {
      if (kept(keep, i)) {
        ArrayList only = new ArrayList();
        only.add(files.get(i));
        InternalRow number = new GenericInternalRow(new Object[] {Integer.valueOf(i)});
        chosen.add(new PartitionDirectory(number, PythonUtils.toSeq(only)));
      }
    }
    return PythonUtils.toSeq(chosen);
  }

  public long bytes(byte[] keep) {
    long sum = 0L;
    for (int i = 0; i < files.size(); i++) {
      if (kept(keep, i)) sum += ((FileStatusWithMetadata) files.get(i)).getLen();
    }
    return sum;
  }

  private static boolean kept(byte[] keep, int i) {
    return (keep[i >> 3] & (1 << (i & 7))) != 0;
  }
}
