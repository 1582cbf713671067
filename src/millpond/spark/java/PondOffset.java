package millpond.spark;

import org.apache.spark.sql.execution.streaming.Offset;

/** A place in a stream, as JSON that Python writes in one and only one way: equal places are equal texts. */
public class PondOffset extends Offset {
  private final String text;

  public PondOffset(String text) {
    this.text = text;
  }

  public String json() {
    return text;
  }
}
