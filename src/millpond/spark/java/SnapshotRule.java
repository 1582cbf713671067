package millpond.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.function.BiFunction;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.optimizer.PushPredicateThroughNonJoin$;
import org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion$;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import scala.collection.immutable.Seq;

/**
 * Gives a query its snapshot. It runs in the optimiser, once per query, on the whole plan with all its subqueries, so
 * every scan of a stream in the query is pinned to the same objects and the same heads: both sides of a join, every
 * subquery, every attempt of every task, and every later execution of the same plan, whose exchanges Spark re-uses.
 *
 * A half without a record in the snapshot becomes an empty relation, and a Union that is left with one child goes: a
 * query on a stream that has settled whole is planned exactly as one on plain Parquet files.
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
    private final BiFunction pin;
    private final String query = java.util.UUID.randomUUID().toString();
    private final HashMap streams = new HashMap();

    public Pinning(BiFunction pin) {
      this.pin = pin;
    }

    public boolean isDefinedAt(Object node) {
      return key(node) != null || isTornUnion(node) || isOverUnion(node);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      String key = key(node);
      if (key != null) return pinned((LogicalRelation) node, stream(key));
      if (isTornUnion(node)) return PropagateEmptyRelation$.MODULE$.apply((LogicalPlan) node);
      if (isOverUnion(node)) return pushed((LogicalPlan) node);
      return otherwise.apply(node);
    }

    private PinnedStream stream(String key) {
      if (!streams.containsKey(key)) {
        streams.put(key, Answers.checked(pin.apply(query, key)));
      }
      return (PinnedStream) streams.get(key);
    }

    private static LogicalPlan pinned(LogicalRelation leaf, PinnedStream stream) {
      BaseRelation relation = leaf.relation();
      if (relation instanceof StreamRelation) return halves(leaf, (StreamRelation) relation, stream);
      BaseRelation exact;
      if (relation instanceof LiveRelation) {
        if (stream.liveRows == 0L) return empty(leaf);
        exact = ((LiveRelation) relation).pin(stream);
      } else {
        if (stream.objects.bytes() == 0L) return empty(leaf);
        HadoopFsRelation files = (HadoopFsRelation) relation;
        exact = new HadoopFsRelation(((SettledIndex) files.location()).pin(stream), files.partitionSchema(),
            files.dataSchema(), files.bucketSpec(), stream.objects.format(), files.options(), files.sparkSession());
      }
      return copy(leaf, exact);
    }

    private static LogicalPlan halves(LogicalRelation leaf, StreamRelation relation, PinnedStream stream) {
      if (stream.liveRows == 0L && stream.objects.bytes() == 0L) return empty(leaf);
      if (stream.liveRows == 0L) return copy(leaf, relation.settled(stream));
      if (stream.objects.bytes() == 0L) return copy(leaf, relation.live(stream));
      // What a Union gives is named as by its first child.
      ArrayList both = new ArrayList();
      both.add(copy(leaf, relation.settled(stream)));
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

    /** The stream of a leaf that is still open; null for anything else. */
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
      if (!(location instanceof SettledIndex)) return null;
      SettledIndex settled = (SettledIndex) location;
      return settled.open() ? settled.key() : null;
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
