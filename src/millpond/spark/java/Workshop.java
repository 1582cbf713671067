package millpond.spark;

import java.util.ArrayList;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CloseableIterator;

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

  /** Rows of an Arrow stream (empty: none), held by the driver: Spark sends them with the tasks that need them. */
  public RDD rows(byte[] stream, StructType schema, SparkContext context) throws Exception {
    if (stream.length == 0) return new JavaSparkContext(context).emptyRDD().rdd();
    CloseableIterator rows = (CloseableIterator) ArrowConverters$.MODULE$.fromIPCStream(stream)._1();
    UnsafeProjection projection = UnsafeProjection.create(schema);
    ArrayList copies = new ArrayList();
    try {
      while (rows.hasNext()) copies.add(projection.apply((InternalRow) rows.next()).copy());
    } finally {
      rows.close();
    }
    return new JavaSparkContext(context).parallelize(copies, 1).rdd();
  }

  /** Let format("millpond") work in this JVM. */
  public void serve(BiFunction opening) {
    PondProvider provider = new PondProvider(opening);
    millpond.DefaultSource.streams = provider;
  }

  /** A Python function as an object of the JVM, for Python to answer with. */
  public BiFunction function(BiFunction function) {
    return function;
  }

  public MicroBatch batch(
      String key, String name, PinnedStream pinned, boolean settled, String where, java.util.Map options) {
    return new MicroBatch(key, name, pinned, settled, where, options);
  }

  public BaseRelation live(String key, String name, SQLContext context, StructType schema) {
    return new LiveRelation(key, name, context, schema, null);
  }
}
