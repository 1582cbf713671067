package millpond.spark;

import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** Some files of a list, for the job that describes them: every row carries its file's number as a partition column. */
public class NumberedFiles implements FileIndex {
  private final FileList files;
  private final byte[] chosen;
  private final StructType number;

  public NumberedFiles(FileList files, byte[] chosen, StructType number) {
    this.files = files;
    this.chosen = chosen;
    this.number = number;
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    return files.numbered(chosen);
  }

  public Seq rootPaths() {
    return files.listed().rootPaths();
  }

  public String[] inputFiles() {
    return files.listed().inputFiles();
  }

  public void refresh() {}

  public long sizeInBytes() {
    return files.bytes(chosen);
  }

  public StructType partitionSchema() {
    return number;
  }

  public scala.Option metadataOpsTimeNs() {
    return scala.Option.empty();
  }

  public boolean isTimeTravel() {
    return false;
  }

  public String toString() {
    return "Millpond(files to index)";
  }
}
