package millpond.spark;

import java.util.HashMap;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.analysis.TempTableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;

/**
 * The temporary views that one attachment has made in a session. A view is its own for as long as the session's catalog
 * has the very object that was put there; one that somebody else made since under the same name is not, and is left
 * alone.
 */
public class OwnViews {
  private final SparkSession session;
  /** By their names in lower case, as Spark compares them unless it is told otherwise: name and object. */
  private final HashMap made = new HashMap();

  public OwnViews(SparkSession session) {
    this.session = session;
  }

  /** Makes a view, or makes one of its own anew. False, and nothing done, if the name is somebody else's. */
  public synchronized boolean make(Dataset frame, String name) throws AnalysisException {
    String quoted = "`" + name + "`"; // a name of digits alone would be a number
    try {
      if (has(name)) frame.createOrReplaceTempView(quoted);
      else frame.createTempView(quoted);
    } catch (TempTableAlreadyExistsException taken) {
      return false;
    }
    made.put(key(name), new Object[] {name, found(name)});
    return true;
  }

  /** Drops a view if it is its own. */
  public synchronized void drop(String name) {
    if (has(name)) session.catalog().dropTempView(name);
    made.remove(key(name));
  }

  public synchronized void dropAll() {
    for (java.util.Iterator each = made.values().iterator(); each.hasNext();) {
      String name = (String) ((Object[]) each.next())[0];
      if (has(name)) session.catalog().dropTempView(name);
    }
    made.clear();
  }

  /** Those that are still its own, in lower case; parted by NUL. */
  public synchronized String names() {
    StringBuilder out = new StringBuilder();
    for (java.util.Iterator each = made.values().iterator(); each.hasNext();) {
      String name = (String) ((Object[]) each.next())[0];
      if (!has(name)) continue;
      if (out.length() > 0) out.append('\0');
      out.append(key(name));
    }
    return out.toString();
  }

  private boolean has(String name) {
    Object[] known = (Object[]) made.get(key(name));
    Object there = found(name);
    return known != null && there != null && there == known[1];
  }

  private static String key(String name) {
    return name.toLowerCase(java.util.Locale.ROOT);
  }

  private Object found(String name) {
    scala.Option there = session.sessionState().catalog().getRawTempView(name);
    return there.isEmpty() ? null : there.get();
  }
}
