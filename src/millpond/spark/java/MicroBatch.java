package millpond.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The records of one micro-batch, planned as a query's are: objects by Spark's own Parquet scan, live ranges by Flight.
 * Both halves are pinned from the start, so the optimiser's SnapshotRule leaves them alone.
 */
public class MicroBatch {
  private final String key;
  private final String name;
  private final PinnedStream pinned;
  private final boolean settled;
  private final String where;
  private final java.util.Map options;

  /**
   * @param settled whether any record may lie in objects
   * @param where which records of the objects belong to the batch, in SQL; empty: all of them
   */
  public MicroBatch(
      String key, String name, PinnedStream pinned, boolean settled, String where, java.util.Map options) {
    this.key = key;
    this.name = name;
    this.pinned = pinned;
    this.settled = settled;
    this.where = where;
    this.options = options;
  }

  public Dataset frame(SparkSession session, StructType schema) {
    Dataset objects = null;
    if (settled) {
      SettledIndex index = new SettledIndex(key, name, pinned.objects, pinned);
      objects = frame(session, new HadoopFsRelation(index, new StructType(), schema, scala.Option.empty(),
          pinned.objects.format(), org.apache.spark.api.python.PythonUtils.toScalaMap(options), session));
      if (!where.isEmpty()) objects = objects.where(where);
    }
    if (pinned.liveRows == 0L) return objects == null ? nothing(session, schema) : objects;
    Dataset live = frame(session, new LiveRelation(key, name, session.sqlContext(), schema, pinned));
    return objects == null ? live : objects.union(live);
  }

  private static Dataset frame(SparkSession session, BaseRelation relation) {
    return Dataset$.MODULE$.ofRows(session, (LogicalPlan) LogicalRelation$.MODULE$.apply(relation, true));
  }

  private static Dataset nothing(SparkSession session, StructType schema) {
    Seq none = (Seq) scala.collection.immutable.Nil$.MODULE$;
    Seq columns = org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(schema);
    return Dataset$.MODULE$.ofRows(session, new LocalRelation(columns, none, true, scala.Option.empty()));
  }
}
