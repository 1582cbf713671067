package millpond.spark;

import java.util.function.BiFunction;

/**
 * One stream as one query sees it: the objects of one version, how many live rows there are up to fixed heads, and the
 * time (microseconds) before which settled rows have expired; 0 if the objects that are read hold none.
 */
public class PinnedStream {
  public final ObjectTable objects;
  public final long liveRows;
  public final long sinceMicros;
  /** Python: ("objects", predicates) gives a bitmap, ("live", columns and predicates) an RDD. */
  public final BiFunction steering;

  public PinnedStream(ObjectTable objects, long liveRows, long sinceMicros, BiFunction steering) {
    this.objects = objects;
    this.liveRows = liveRows;
    this.sinceMicros = sinceMicros;
    this.steering = steering;
  }

  /**
   * A scan that was never pinned was planned by a session whose optimiser does not run the SnapshotRule. Of all that
   * could be thrown here and elsewhere, an IllegalArgumentException is what PySpark shows without a page of Java.
   */
  public static void check(PinnedStream stream, String name) {
    if (stream == null) {
      throw new IllegalArgumentException("Millpond does not know the session that reads stream " + name
          + ". Make the DataFrame or the view in this very session (to_spark, attach).");
    }
  }
}
