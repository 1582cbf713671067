package millpond.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * One of Spark's own formats, whose files are never split: each is read by one task, from its first row to its last. Only
 * then can a task describe a file. The reader itself is the format's, so that nothing of this class goes to executors.
 */
public class WholeFiles implements FileFormat {
  private final FileFormat format;

  public WholeFiles(FileFormat format) {
    this.format = format;
  }

  public boolean isSplitable(SparkSession session, Map options, Path path) {
    return false;
  }

  public scala.Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partition,
      StructType required, Seq filters, Map options, Configuration configuration) {
    return format.buildReaderWithPartitionValues(session, data, partition, required, filters, options, configuration);
  }

  public scala.Function1 buildReader(SparkSession session, StructType data, StructType partition, StructType required,
      Seq filters, Map options, Configuration configuration) {
    return format.buildReader(session, data, partition, required, filters, options, configuration);
  }

  public boolean supportBatch(SparkSession session, StructType schema) {
    return format.supportBatch(session, schema);
  }

  public Option vectorTypes(StructType required, StructType partition, SQLConf conf) {
    return format.vectorTypes(required, partition, conf);
  }

  public boolean supportDataType(DataType type) {
    return format.supportDataType(type);
  }

  public boolean supportReadDataType(DataType type) {
    return format.supportReadDataType(type);
  }

  public boolean supportFieldName(String name) {
    return format.supportFieldName(name);
  }

  public boolean allowDuplicatedColumnNames() {
    return format.allowDuplicatedColumnNames();
  }

  public Option inferSchema(SparkSession session, Map options, Seq files) {
    return format.inferSchema(session, options, files);
  }

  public OutputWriterFactory prepareWrite(SparkSession session, Job job, Map options, StructType schema) {
    throw new UnsupportedOperationException("files that others wrote are only read");
  }
}
