package millpond.spark;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.function.BiFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$CancellableFSDataOutputStream;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * A stream as a source of Structured Streaming. Python decides what a batch holds; what is kept here is where the query
 * began. That is written into the query's checkpoint before the first batch is planned: the batch must begin at the same
 * place if it is run again, although "latest" means another place by then.
 */
public class PondSource implements Source, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final String STARTED_AT = "started-at";

  private final SparkSession session;
  private final StructType schema;
  private final String checkpoint;
  /** Python: (question, text) gives a text, or a MicroBatch. */
  private final BiFunction steering;
  private String began;
  private String newest;

  public PondSource(SparkSession session, StructType schema, String checkpoint, BiFunction steering) {
    this.session = session;
    this.schema = schema;
    this.checkpoint = checkpoint;
    this.steering = steering;
  }

  public StructType schema() {
    return schema;
  }

  public ReadLimit getDefaultReadLimit() {
    return new AsOptionsSay();
  }

  public void prepareForTriggerAvailableNow() {
    ask("up to now", "");
  }

  /** Null: nothing is there yet, so that no empty batch is run. */
  public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
      org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
    String from = start == null ? began() : start.json();
    String question = limit instanceof ReadAllAvailable ? "latest" : "latest within limits";
    String[] found = ((String) ask(question, from)).split("\0");
    newest = found[1];
    return start == null && found[0].equals(from) ? null : new PondOffset(found[0]);
  }

  public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() {
    return newest == null ? null : new PondOffset(newest);
  }

  public Dataset getBatch(Option start, Offset end) {
    String from = start.isDefined() ? ((Offset) start.get()).json() : began();
    return ((MicroBatch) ask("batch", from + "\0" + end.json() + "\0" + schema.json())).frame(session);
  }

  public void commit(Offset end) {
    ask("commit", end.json());
  }

  public java.util.Map metrics(java.util.Optional consumed) {
    HashMap found = new HashMap();
    if (consumed.isPresent() && newest != null) {
      String at = ((org.apache.spark.sql.connector.read.streaming.Offset) consumed.get()).json();
      found.put("recordsBehind", ask("behind", at + "\0" + newest));
    }
    return found;
  }

  public void stop() {
    ask("stop", "");
  }

  public Option getOffset() {
    throw new UnsupportedOperationException("Spark asks for latestOffset of a source that has limits");
  }

  public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() {
    throw new UnsupportedOperationException("a source of this kind is given no start for its first batch");
  }

  public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) {
    return new PondOffset(json);
  }

  public String toString() {
    return (String) ask("name", "");
  }

  /** Spark hands this back to latestOffset, or ReadAllAvailable if the trigger is to know no limits (Once). */
  public static class AsOptionsSay implements ReadLimit {}

  private Object ask(String question, String text) {
    return Answers.checked(steering.apply(question, text));
  }

  private String began() {
    if (began == null) {
      try {
        began = rememberedStart();
      } catch (java.io.IOException error) {
        throw new IllegalArgumentException("Millpond: the checkpoint " + checkpoint + " does not take or give where the "
            + "query began: " + error);
      }
    }
    return began;
  }

  private String rememberedStart() throws java.io.IOException {
    Path directory = new Path(checkpoint);
    Path file = new Path(directory, STARTED_AT);
    CheckpointFileManager files =
        CheckpointFileManager$.MODULE$.create(directory, session.sessionState().newHadoopConf());
    if (files.exists(file)) {
      FSDataInputStream in = files.open(file);
      try {
        return (String) ask("began", new String(in.readAllBytes(), StandardCharsets.UTF_8));
      } finally {
        in.close();
      }
    }
    String start = (String) ask("start", "");
    files.mkdirs(directory);
    CheckpointFileManager$CancellableFSDataOutputStream out = files.createAtomic(file, false);
    try {
      out.write(start.getBytes(StandardCharsets.UTF_8));
    } catch (java.io.IOException error) {
      out.cancel();
      throw error;
    }
    out.close();
    return start;
  }
}
