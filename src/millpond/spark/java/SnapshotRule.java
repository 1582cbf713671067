package millpond.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.function.BiFunction;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.optimizer.PushPredicateThroughNonJoin$;
import org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion$;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Gives a query its snapshot. It runs in the optimiser, once per query, on the whole plan with all its subqueries, so
 * every scan of a stream in the query is pinned to the same objects and the same heads: both sides of a join, every
 * subquery, every attempt of every task, and every later execution of the same plan, whose exchanges Spark re-uses.
 *
 * A half without a record in the snapshot becomes an empty relation, and a Union that is left with one child goes: a
 * query on a stream that has settled whole is planned exactly as one on plain Parquet files. Where objects hold expired
 * rows beside others, a Filter on the time of ingestion stands on the settled half; the node does it for the live one.
 *
 * A data set, files that others wrote, is pinned to a list of them, and its scan is told the condition above it.
 */
public class SnapshotRule extends Rule {
  private final BiFunction pin;

  /** @param pin Python: (query, stream key) gives a PinnedStream, or a String: why there is none */
  public SnapshotRule(BiFunction pin) {
    this.pin = pin;
  }

  public TreeNode apply(TreeNode tree) {
    // Spark optimises subqueries on their own first; they are pinned with the query that they belong to.
    if (tree instanceof Subquery) return tree;
    return ((LogicalPlan) tree).transformUpWithSubqueries(new Pinning(pin));
  }

  /** One run of the rule. */
  public static class Pinning extends scala.runtime.AbstractPartialFunction {
    private static final String INGEST_TIME = "_ingest_time";
    private final BiFunction pin;
    private final String query = java.util.UUID.randomUUID().toString();
    private final HashMap streams = new HashMap();

    public Pinning(BiFunction pin) {
      this.pin = pin;
    }

    public boolean isDefinedAt(Object node) {
      return key(node) != null || isTornUnion(node) || isOverUnion(node) || isOverDataset(node);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      String key = key(node);
      if (key != null && dataset(node) != null) return pinned((LogicalRelation) node, files(key));
      if (key != null) return pinned((LogicalRelation) node, stream(key));
      if (isOverDataset(node)) return told((Filter) node);
      if (isTornUnion(node)) return PropagateEmptyRelation$.MODULE$.apply((LogicalPlan) node);
      if (isOverUnion(node)) return pushed((LogicalPlan) node);
      return otherwise.apply(node);
    }

    private PinnedStream stream(String key) {
      return (PinnedStream) found(key);
    }

    private PinnedFiles files(String key) {
      return (PinnedFiles) found(key);
    }

    private Object found(String key) {
      if (!streams.containsKey(key)) {
        streams.put(key, Answers.checked(pin.apply(query, key)));
      }
      return streams.get(key);
    }

    private static LogicalPlan pinned(LogicalRelation leaf, PinnedFiles files) {
      return copy(leaf, at((HadoopFsRelation) leaf.relation(), dataset(leaf).pin(files)));
    }

    private static BaseRelation at(HadoopFsRelation files, DatasetIndex location) {
      return new HadoopFsRelation(location, files.partitionSchema(), files.dataSchema(), files.bucketSpec(),
          files.fileFormat(), files.options(), files.sparkSession());
    }

    /** Where a relation reads a data set; null for any other node. */
    private static DatasetIndex dataset(Object node) {
      if (!(node instanceof LogicalRelation)) return null;
      BaseRelation relation = ((LogicalRelation) node).relation();
      if (!(relation instanceof HadoopFsRelation)) return null;
      Object location = ((HadoopFsRelation) relation).location();
      return location instanceof DatasetIndex ? (DatasetIndex) location : null;
    }

    /** A filter right on a data set that has not been told of one. */
    private static boolean isOverDataset(Object node) {
      if (!(node instanceof Filter)) return false;
      DatasetIndex location = dataset(((Filter) node).child());
      return location != null && !location.open() && !location.conditioned();
    }

    /** The same filter, of which the scan knows. */
    private static LogicalPlan told(Filter filter) {
      LogicalRelation leaf = (LogicalRelation) filter.child();
      ArrayList terms = new ArrayList();
      terms.add(filter.condition());
      Seq named = DataSourceStrategy$.MODULE$.normalizeExprs(PythonUtils.toSeq(terms), (Seq) leaf.output());
      return new Filter(filter.condition(), copy(leaf, at((HadoopFsRelation) leaf.relation(), dataset(leaf).where(named))));
    }

    private static LogicalPlan pinned(LogicalRelation leaf, PinnedStream stream) {
      BaseRelation relation = leaf.relation();
      if (relation instanceof StreamRelation) return halves(leaf, (StreamRelation) relation, stream);
      if (relation instanceof LiveRelation) {
        return stream.liveRows == 0L ? empty(leaf) : (LogicalPlan) copy(leaf, ((LiveRelation) relation).pin(stream));
      }
      if (stream.objects.bytes() == 0L) return empty(leaf);
      HadoopFsRelation files = (HadoopFsRelation) relation;
      Attribute ingested = ingestTime((Seq) leaf.output());
      if (stream.sinceMicros == 0L || ingested != null) {
        return since(ingested, copy(leaf, pinned(files, files.dataSchema(), stream)), stream);
      }
      // Spark has narrowed the relation to fields that the query names: ours is read as well, and left out again.
      ingested = new AttributeReference(INGEST_TIME, DataTypes.TimestampType, false, Metadata.empty(),
          NamedExpression$.MODULE$.newExprId(), (Seq) scala.collection.immutable.Nil$.MODULE$);
      BaseRelation wider = pinned(files, files.dataSchema().add(INGEST_TIME, DataTypes.TimestampType, false), stream);
      LogicalPlan whole = leaf.copy(wider, (Seq) ((Seq) leaf.output()).appended(ingested), leaf.catalogTable(),
          leaf.isStreaming(), leaf.stream());
      return new Project((Seq) leaf.output(), since(ingested, whole, stream));
    }

    private static BaseRelation pinned(HadoopFsRelation files, StructType schema, PinnedStream stream) {
      return new HadoopFsRelation(((SettledIndex) files.location()).pin(stream), files.partitionSchema(), schema,
          files.bucketSpec(), stream.objects.format(), files.options(), files.sparkSession());
    }

    /** What has not expired of the settled half. */
    private static LogicalPlan since(Attribute ingested, LogicalPlan settled, PinnedStream stream) {
      if (stream.sinceMicros == 0L) return settled;
      Expression cutoff = new Literal(Long.valueOf(stream.sinceMicros), DataTypes.TimestampType);
      return new Filter(new GreaterThanOrEqual((Expression) ingested, cutoff), settled);
    }

    private static Attribute ingestTime(Seq output) {
      for (int i = 0; i < output.size(); i++) {
        Attribute each = (Attribute) output.apply(i);
        if (each.name().equals(INGEST_TIME)) return each;
      }
      return null;
    }

    private static LogicalPlan halves(LogicalRelation leaf, StreamRelation relation, PinnedStream stream) {
      if (stream.liveRows == 0L && stream.objects.bytes() == 0L) return empty(leaf);
      LogicalPlan settled = since(ingestTime((Seq) leaf.output()), copy(leaf, relation.settled(stream)), stream);
      if (stream.liveRows == 0L) return settled;
      if (stream.objects.bytes() == 0L) return copy(leaf, relation.live(stream));
      // What a Union gives is named as by its first child.
      ArrayList both = new ArrayList();
      both.add(settled);
      both.add(copy(leaf, relation.live(stream)).newInstance());
      return new Union(PythonUtils.toSeq(both), false, false);
    }

    private static LogicalRelation copy(LogicalRelation leaf, BaseRelation relation) {
      return leaf.copy(relation, leaf.output(), leaf.catalogTable(), leaf.isStreaming(), leaf.stream());
    }

    /** A filter or a choice of columns over a Union goes to its children, where scans see it: Spark's own rules, which
     * have run already when a whole stream becomes a Union here. */
    private static boolean isOverUnion(Object node) {
      if (!(node instanceof Filter || node instanceof Project)) return false;
      return ((LogicalPlan) node).children().apply(0) instanceof Union;
    }

    private static LogicalPlan pushed(LogicalPlan node) {
      return node instanceof Filter
          ? PushPredicateThroughNonJoin$.MODULE$.apply(node) : PushProjectionThroughUnion$.MODULE$.apply(node);
    }

    private static LogicalPlan empty(LogicalRelation leaf) {
      Seq nothing = (Seq) scala.collection.immutable.Nil$.MODULE$;
      return new LocalRelation((Seq) leaf.output(), nothing, false, scala.Option.empty());
    }

    /** The stream or the data set of a leaf that is still open; null for anything else. */
    private static String key(Object node) {
      if (!(node instanceof LogicalRelation)) return null;
      BaseRelation relation = ((LogicalRelation) node).relation();
      if (relation instanceof LiveRelation) {
        LiveRelation live = (LiveRelation) relation;
        return live.open() ? live.key() : null;
      }
      if (relation instanceof StreamRelation) return ((StreamRelation) relation).key();
      if (!(relation instanceof HadoopFsRelation)) return null;
      Object location = ((HadoopFsRelation) relation).location();
      if (!(location instanceof PondIndex)) return null;
      PondIndex index = (PondIndex) location;
      return index.open() ? index.key() : null;
    }

    private static boolean isTornUnion(Object node) {
      if (!(node instanceof Union)) return false;
      Seq children = ((Union) node).children();
      for (int i = 0; i < children.size(); i++) {
        LogicalPlan at = (LogicalPlan) children.apply(i);
        while (at instanceof Project || at instanceof Filter) at = (LogicalPlan) at.children().apply(0);
        if (at instanceof LocalRelation && ((LocalRelation) at).data().isEmpty()) return true;
      }
      return false;
    }
  }
}
