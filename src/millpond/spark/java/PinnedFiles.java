package millpond.spark;

import java.util.function.BiFunction;

/** A data set as one query sees it: its files as they are listed when the query is planned. */
public class PinnedFiles {
  public final FileList files;
  /** Python: (which files Spark's own pruning leaves, predicates) gives a bitmap of those to read. */
  public final BiFunction steering;

  public PinnedFiles(FileList files, BiFunction steering) {
    this.files = files;
    this.steering = steering;
  }
}
