package millpond.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The records of one micro-batch, planned as a query's are: objects by Spark's own Parquet scan, live ranges by Flight.
 * Both halves are pinned from the start, so the optimiser's SnapshotRule leaves them alone.
 */
public class MicroBatch {
  private final StreamRelation stream;
  private final PinnedStream pinned;
  private final boolean settled;
  private final String where;

  /**
   * @param settled whether any record may lie in objects
   * @param where which records of the objects belong to the batch, in SQL; empty: all of them
   */
  public MicroBatch(StreamRelation stream, PinnedStream pinned, boolean settled, String where) {
    this.stream = stream;
    this.pinned = pinned;
    this.settled = settled;
    this.where = where;
  }

  public Dataset frame(SparkSession session) {
    Dataset objects = null;
    if (settled) {
      objects = frame(session, stream.settled(pinned));
      if (!where.isEmpty()) objects = objects.where(where);
    }
    if (pinned.liveRows == 0L) return objects == null ? nothing(session, stream.schema()) : objects;
    Dataset live = frame(session, stream.live(pinned));
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
