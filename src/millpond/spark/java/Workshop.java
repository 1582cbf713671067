package millpond.spark;

import java.util.function.BiFunction;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/** Makes the objects of this package for Python, one call each. */
public class Workshop {
  public ObjectTable table(String root, String blob, String doubtful) {
    return new ObjectTable(root, blob, doubtful);
  }

  public PinnedStream pinned(ObjectTable objects, long liveRows, BiFunction steering) {
    return new PinnedStream(objects, liveRows, steering);
  }

  public SnapshotRule rule(BiFunction pin) {
    return new SnapshotRule(pin);
  }

  public BaseRelation settled(
      String key, String name, ObjectTable known, StructType schema, java.util.Map options, SparkSession session) {
    return new HadoopFsRelation(new SettledIndex(key, name, known, null), new StructType(), schema,
        scala.Option.empty(), new ParquetFileFormat(),
        org.apache.spark.api.python.PythonUtils.toScalaMap(options), session);
  }

  public BaseRelation live(String key, String name, SQLContext context, StructType schema) {
    return new LiveRelation(key, name, context, schema, null);
  }
}
