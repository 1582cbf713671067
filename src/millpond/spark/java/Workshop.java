package millpond.spark;

import java.util.ArrayList;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CloseableIterator;
import scala.collection.immutable.Seq;

/** Makes the objects of this package for Python, one call each. */
public class Workshop {
  public ObjectTable table(String root, String blob, String doubtful) {
    return new ObjectTable(root, blob, doubtful);
  }

  public PinnedStream pinned(ObjectTable objects, long liveRows, long sinceMicros, BiFunction steering) {
    return new PinnedStream(objects, liveRows, sinceMicros, steering);
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

  /** Rows of Arrow streams (empty: none), held by the driver: Spark sends them with the tasks, one for each stream. */
  public RDD rows(java.util.List streams, StructType schema, SparkContext context) throws Exception {
    JavaSparkContext java = new JavaSparkContext(context);
    ArrayList parts = new ArrayList();
    for (int i = 0; i < streams.size(); i++) {
      byte[] stream = (byte[]) streams.get(i);
      if (stream.length > 0) parts.add(java.parallelize(rows(stream, schema), 1));
    }
    if (parts.isEmpty()) return java.emptyRDD().rdd();
    return java.union((JavaRDD[]) parts.toArray(new JavaRDD[parts.size()])).rdd();
  }

  private static ArrayList rows(byte[] stream, StructType schema) throws Exception {
    CloseableIterator rows = (CloseableIterator) ArrowConverters$.MODULE$.fromIPCStream(stream)._1();
    UnsafeProjection projection = UnsafeProjection.create(schema);
    ArrayList copies = new ArrayList();
    try {
      while (rows.hasNext()) copies.add(projection.apply((InternalRow) rows.next()).copy());
    } finally {
      rows.close();
    }
    return copies;
  }

  /** Let format("millpond") work in this JVM. */
  public void serve(BiFunction opening) {
    if (millpond.DefaultSource.streams != null) return; // what a provider remembers of frames outlives who asks again
    PondProvider provider = new PondProvider(opening);
    millpond.DefaultSource.streams = provider;
    millpond.DefaultSource.relations = provider;
    PondWriter writer = new PondWriter(opening);
    millpond.DefaultSource.writers = writer;
    millpond.DefaultSource.sinks = writer;
  }

  /** The files that a write reported; see OneCommit. */
  public String reported(String write) {
    return millpond.OneCommit.taken(write);
  }

  /** The frame in a session of its own, in which files are written by OneCommit. */
  public org.apache.spark.sql.Dataset inOneCommit(org.apache.spark.sql.Dataset data) {
    org.apache.spark.sql.classic.Dataset frame = (org.apache.spark.sql.classic.Dataset) data;
    org.apache.spark.sql.classic.SparkSession session =
        ((org.apache.spark.sql.classic.SparkSession) frame.sparkSession()).cloneSession();
    session.conf().set("spark.sql.sources.commitProtocolClass", "millpond.OneCommit");
    return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(session, frame.queryExecution().logical());
  }

  /** A Python function as an object of the JVM, for Python to answer with. */
  public BiFunction function(BiFunction function) {
    return function;
  }

  public MicroBatch batch(StreamRelation stream, PinnedStream pinned, boolean settled, String where) {
    return new MicroBatch(stream, pinned, settled, where);
  }

  public StreamRelation whole(
      String key, String name, ObjectTable known, SparkSession session, StructType schema, java.util.Map options) {
    return new StreamRelation(
        key, name, known, (org.apache.spark.sql.classic.SparkSession) session, schema, options);
  }

  public BaseRelation live(String key, String name, SQLContext context, StructType schema) {
    return new LiveRelation(key, name, context, schema, null);
  }

  /** What Spark reads at a path: its files listed, their partitions found, their schema taken or (null) inferred. */
  public HadoopFsRelation resolved(
      SparkSession session, String format, String path, StructType schema, java.util.Map options) {
    ArrayList paths = new ArrayList();
    paths.add(path);
    Seq none = (Seq) scala.collection.immutable.Nil$.MODULE$;
    DataSource source = new DataSource(session, format, PythonUtils.toSeq(paths), scala.Option.apply(schema), none,
        scala.Option.empty(), PythonUtils.toScalaMap(options), scala.Option.empty(), scala.Option.empty());
    return (HadoopFsRelation) source.resolveRelation(true, true, source.resolveRelation$default$3());
  }

  public FileList files(HadoopFsRelation resolved) {
    return new FileList(resolved);
  }

  public PinnedFiles pinnedFiles(FileList files, BiFunction steering) {
    return new PinnedFiles(files, steering);
  }

  /** A data set, still open: the SnapshotRule gives each query its files. */
  public BaseRelation dataset(String key, String name, long bytes, String format, StructType data,
      StructType partitions, java.util.Map options, SparkSession session) throws Exception {
    DatasetIndex open = new DatasetIndex(key, name, bytes, partitions, null, "[]");
    return new HadoopFsRelation(open, partitions, data, scala.Option.empty(), named(format, options, session),
        PythonUtils.toScalaMap(options), session);
  }

  private static FileFormat named(String format, java.util.Map options, SparkSession session) {
    Seq none = (Seq) scala.collection.immutable.Nil$.MODULE$;
    DataSource source = new DataSource(session, format, none, scala.Option.empty(), none, scala.Option.empty(),
        PythonUtils.toScalaMap(options), scala.Option.empty(), scala.Option.empty());
    return (FileFormat) source.providingInstance();
  }

  /** Some files of a list, each read whole by one task, its number in the column `number` of every row. */
  public BaseRelation numbered(HadoopFsRelation resolved, FileList files, byte[] chosen, StructType data,
      StructType number, java.util.Map options) {
    return new HadoopFsRelation(new NumberedFiles(files, chosen, number), number, data, scala.Option.empty(),
        new WholeFiles(resolved.fileFormat()), PythonUtils.toScalaMap(options), resolved.sparkSession());
  }

  public OwnViews views(SparkSession session) {
    return new OwnViews((org.apache.spark.sql.classic.SparkSession) session);
  }
}
