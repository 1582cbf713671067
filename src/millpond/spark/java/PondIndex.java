package millpond.spark;

import org.apache.spark.sql.execution.datasources.FileIndex;

/**
 * Files that Spark's planner asks Millpond for. In a DataFrame it is open (it only has a key); the SnapshotRule replaces
 * it by a pinned one, which knows its files, when a query is optimised.
 */
public abstract class PondIndex implements FileIndex {
  protected final String key;
  protected final String name;

  protected PondIndex(String key, String name) {
    this.key = key;
    this.name = name;
  }

  public String key() {
    return key;
  }

  public abstract boolean open();

  /** What is pinned is never listed anew. */
  public void refresh() {}

  public scala.Option metadataOpsTimeNs() {
    return scala.Option.empty();
  }

  public boolean isTimeTravel() {
    return false;
  }

  public String toString() {
    return "Millpond(" + name + ")";
  }
}
