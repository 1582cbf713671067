package millpond;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * What format("millpond") is to Spark: of a format that nobody has registered it loads the class DefaultSource. This one
 * lies where Spark's class loader finds it, and only passes on to those of millpond.spark, which lie where it does not.
 */
public class DefaultSource
    implements StreamSourceProvider, RelationProvider, CreatableRelationProvider, StreamSinkProvider {
  /** Set by the Workshop, once per JVM. */
  public static volatile StreamSourceProvider streams;
  public static volatile RelationProvider relations;
  public static volatile CreatableRelationProvider writers;
  public static volatile StreamSinkProvider sinks;

  public Tuple2 sourceSchema(SQLContext context, Option schema, String name, Map options) {
    return streams.sourceSchema(context, schema, name, options);
  }

  public Source createSource(SQLContext context, String metadata, Option schema, String name, Map options) {
    return streams.createSource(context, metadata, schema, name, options);
  }

  public BaseRelation createRelation(SQLContext context, Map options) {
    return relations.createRelation(context, options);
  }

  public BaseRelation createRelation(SQLContext context, SaveMode mode, Map options, Dataset data) {
    return writers.createRelation(context, mode, options, data);
  }

  public Sink createSink(SQLContext context, Map options, Seq columns, OutputMode mode) {
    return sinks.createSink(context, options, columns, mode);
  }
}
