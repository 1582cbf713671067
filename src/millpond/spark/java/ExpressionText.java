package millpond.spark;

import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneOffsetTransitionRule;
import java.time.zone.ZoneRules;
import java.util.ArrayDeque;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/**
 * Catalyst's predicates as JSON, with exact values: what Expression.toJSON leaves out (the values of a long IN list) or
 * writes for people (times in the session's zone) is written as Spark holds it. A value that cannot be written exactly
 * makes its node "opaque", which the reader takes for "not understood".
 *
 * A node is {"is": class, "of": [children]}; literals add "type" and "value", attributes "type" and "name", and what
 * depends on the session's time zone adds "zone".
 */
public class ExpressionText {
  /** Beyond this many values an IN list costs more to send than it can save. */
  private static final int VALUES_MAX = 10000;

  public static String write(Seq predicates) {
    StringBuilder out = new StringBuilder("[");
    for (int i = 0; i < predicates.size(); i++) {
      if (i > 0) out.append(',');
      node(out, (Expression) predicates.apply(i));
    }
    return out.append(']').toString();
  }

  private static void node(StringBuilder out, Expression e) {
    if (e instanceof Literal) {
      literal(out, ((Literal) e).value(), e.dataType());
    } else if (e instanceof AttributeReference) {
      open(out, "AttributeReference").append(",\"name\":");
      text(out, ((AttributeReference) e).name());
      type(out, e.dataType()).append('}');
    } else if (e instanceof And || e instanceof Or) {
      chain(out, e);
    } else if (e instanceof InSet) {
      inSet(out, (InSet) e);
    } else {
      open(out, e.getClass().getSimpleName());
      if (e instanceof GetStructField) {
        text(out.append(",\"name\":"), ((GetStructField) e).extractFieldName());
      } else if (e instanceof Cast) {
        type(out, e.dataType());
      } else if (e instanceof Like) {
        text(out.append(",\"escape\":"), String.valueOf(((Like) e).escapeChar()));
      }
      if (e instanceof TimeZoneAwareExpression && ((TimeZoneAwareExpression) e).timeZoneId().isDefined()) {
        zone(out, ((TimeZoneAwareExpression) e).zoneId().getRules());
      }
      children(out, e.children()).append('}');
    }
  }

  /** Long chains of AND and OR arrive as deep trees; they leave as one node. */
  private static void chain(StringBuilder out, Expression e) {
    boolean and = e instanceof And;
    open(out, and ? "And" : "Or").append(",\"of\":[");
    ArrayDeque waiting = new ArrayDeque();
    waiting.push(e);
    boolean first = true;
    while (!waiting.isEmpty()) {
      Expression at = (Expression) waiting.pop();
      if (and ? at instanceof And : at instanceof Or) {
        waiting.push(at.children().apply(1));
        waiting.push(at.children().apply(0));
      } else {
        if (!first) out.append(',');
        first = false;
        node(out, at);
      }
    }
    out.append("]}");
  }

  private static void inSet(StringBuilder out, InSet e) {
    if (e.hset().size() > VALUES_MAX) {
      opaque(out);
      return;
    }
    open(out, "In").append(",\"of\":[");
    node(out, (Expression) e.child());
    scala.collection.Iterator values = e.hset().iterator();
    while (values.hasNext()) {
      out.append(',');
      literal(out, values.next(), e.child().dataType());
    }
    out.append("]}");
  }

  private static void literal(StringBuilder out, Object value, DataType type) {
    if (value instanceof UTF8String && !((UTF8String) value).isValid()) {
      opaque(out);
      return;
    }
    type(open(out, "Literal"), type).append(",\"value\":");
    if (value == null) {
      out.append("null");
    } else if (value instanceof byte[]) {
      text(out, java.util.Base64.getEncoder().encodeToString((byte[]) value));
    } else if (value instanceof Float) {
      text(out, Double.toString(((Float) value).doubleValue()));
    } else {
      // Numbers, dates (days), timestamps (microseconds), decimals, booleans and strings are exact as text; whether a
      // text is to be believed is decided by the type.
      text(out, value.toString());
    }
    out.append('}');
  }

  /** How many seconds the zone was ever ahead of UTC, at least and at most: all that is needed to be on the safe side. */
  private static void zone(StringBuilder out, ZoneRules rules) {
    int least = rules.getOffset(java.time.Instant.EPOCH).getTotalSeconds();
    int most = least;
    java.util.Iterator past = rules.getTransitions().iterator();
    while (past.hasNext()) {
      ZoneOffsetTransition at = (ZoneOffsetTransition) past.next();
      least = Math.min(least, Math.min(at.getOffsetBefore().getTotalSeconds(), at.getOffsetAfter().getTotalSeconds()));
      most = Math.max(most, Math.max(at.getOffsetBefore().getTotalSeconds(), at.getOffsetAfter().getTotalSeconds()));
    }
    java.util.Iterator yearly = rules.getTransitionRules().iterator();
    while (yearly.hasNext()) {
      ZoneOffsetTransitionRule at = (ZoneOffsetTransitionRule) yearly.next();
      least = Math.min(least, Math.min(at.getOffsetBefore().getTotalSeconds(), at.getOffsetAfter().getTotalSeconds()));
      most = Math.max(most, Math.max(at.getOffsetBefore().getTotalSeconds(), at.getOffsetAfter().getTotalSeconds()));
    }
    out.append(",\"zone\":[").append(least).append(',').append(most).append(']');
  }

  private static void opaque(StringBuilder out) {
    open(out, "Opaque").append('}');
  }

  private static StringBuilder open(StringBuilder out, String name) {
    text(out.append("{\"is\":"), name);
    return out;
  }

  private static StringBuilder type(StringBuilder out, DataType type) {
    text(out.append(",\"type\":"), type.catalogString());
    return out;
  }

  private static StringBuilder children(StringBuilder out, Seq children) {
    out.append(",\"of\":[");
    for (int i = 0; i < children.size(); i++) {
      if (i > 0) out.append(',');
      node(out, (Expression) children.apply(i));
    }
    return out.append(']');
  }

  private static void text(StringBuilder out, String value) {
    out.append('"');
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 32 || c > 126) {
        String hex = Integer.toHexString(c);
        out.append("\\u").append("0000".substring(hex.length())).append(hex);
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
