package millpond.spark;

import java.util.ArrayList;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.*;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Spark's Parquet reader, but for filters that NaN would pass on columns where NaN may be, and those with a zero.
 *
 * To Spark NaN is greater than every number. Parquet's statistics leave NaN out, and the reader believes them: a row
 * group of 5.0 and NaN counts as "at most 5", and "x > 7" skips it, with its NaN. To Spark -0.0 equals 0.0. The reader
 * looks up values in a row group's dictionary, where they are two: "x = 0" skips a row group of -0.0. Such filters are
 * not handed to the reader. Spark applies every filter to the rows in any case.
 *
 * The reader itself is a plain one, so that nothing of this class goes to executors.
 */
public class CarefulParquet extends ParquetFileFormat {
  private final Set doubtful;

  /** @param doubtful the columns, and fields of structs ("a.b"), that may hold NaN */
  public CarefulParquet(Set doubtful) {
    this.doubtful = doubtful;
  }

  public scala.Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
      StructType required, Seq filters, Map options, Configuration configuration) {
    return new ParquetFileFormat().buildReaderWithPartitionValues(
        session, data, partition, required, kept(filters), options, configuration);
  }

  private Seq kept(Seq filters) {
    ArrayList safe = new ArrayList();
    for (int i = 0; i < filters.size(); i++) {
      Filter filter = (Filter) filters.apply(i);
      if (isSafe(filter) && !hasZero(filter)) safe.add(filter);
    }
    return PythonUtils.toSeq(safe);
  }

  /** Whether no NaN passes, or no column is in doubt. */
  private boolean isSafe(Filter filter) {
    String[] columns = filter.references();
    boolean doubt = false;
    for (int i = 0; i < columns.length; i++) doubt = doubt || doubtful.contains(columns[i]);
    if (!doubt) return true;
    if (filter instanceof And) return isSafe(((And) filter).left()) && isSafe(((And) filter).right());
    if (filter instanceof Or) return isSafe(((Or) filter).left()) && isSafe(((Or) filter).right());
    if (filter instanceof EqualTo) return !isNaN(((EqualTo) filter).value());
    if (filter instanceof EqualNullSafe) return !isNaN(((EqualNullSafe) filter).value());
    if (filter instanceof LessThan) return !isNaN(((LessThan) filter).value());
    if (filter instanceof LessThanOrEqual) return !isNaN(((LessThanOrEqual) filter).value());
    if (filter instanceof In) {
      Object[] values = ((In) filter).values();
      for (int i = 0; i < values.length; i++) if (isNaN(values[i])) return false;
      return true;
    }
    return filter instanceof IsNull || filter instanceof IsNotNull;
  }

  /** Whether a float is compared with a zero of either sign. */
  private static boolean hasZero(Filter filter) {
    if (filter instanceof And) return hasZero(((And) filter).left()) || hasZero(((And) filter).right());
    if (filter instanceof Or) return hasZero(((Or) filter).left()) || hasZero(((Or) filter).right());
    if (filter instanceof Not) return hasZero(((Not) filter).child());
    if (filter instanceof EqualTo) return isZero(((EqualTo) filter).value());
    if (filter instanceof EqualNullSafe) return isZero(((EqualNullSafe) filter).value());
    if (filter instanceof LessThan) return isZero(((LessThan) filter).value());
    if (filter instanceof LessThanOrEqual) return isZero(((LessThanOrEqual) filter).value());
    if (filter instanceof GreaterThan) return isZero(((GreaterThan) filter).value());
    if (filter instanceof GreaterThanOrEqual) return isZero(((GreaterThanOrEqual) filter).value());
    if (filter instanceof In) {
      Object[] values = ((In) filter).values();
      for (int i = 0; i < values.length; i++) if (isZero(values[i])) return true;
      return false;
    }
    return false;
  }

  private static boolean isZero(Object value) {
    return value instanceof Double && ((Double) value).doubleValue() == 0
        || value instanceof Float && ((Float) value).floatValue() == 0;
  }

  private static boolean isNaN(Object value) {
    return value instanceof Double && ((Double) value).isNaN() || value instanceof Float && ((Float) value).isNaN();
  }
}
