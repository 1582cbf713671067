package millpond;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileCommitProtocol$TaskCommitMessage;
import org.apache.spark.internal.io.FileNameSpec;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * How Spark's own file formats are written here: each file once, to its final name, which nobody else has. A task reports
 * its files, and the driver hands what the tasks of a job reported to Python, which names them in one manifest. Nothing
 * is renamed, listed or removed on the way. It lies where executors find it.
 */
public class OneCommit extends FileCommitProtocol implements java.io.Serializable {
  /** Under which name the thread that writes wants to be handed the files. */
  public static final String WRITE = "millpond.write";

  /** In the driver: what jobs reported, until Python takes it. */
  private static final ConcurrentHashMap REPORTED = new ConcurrentHashMap();

  private final String path;
  private transient ArrayList files;

  public OneCommit(String job, String path, boolean dynamic) {
    this.path = path;
  }

  /** Paths below the directory, each followed by its size, parted by NUL; null if no job of that name was committed. */
  public static String taken(String write) {
    return (String) REPORTED.remove(write);
  }

  public void setupJob(JobContext context) {}

  public void setupTask(TaskAttemptContext context) {
    files = new ArrayList();
  }

  public String newTaskTempFile(TaskAttemptContext context, Option directory, FileNameSpec name) {
    int task = context.getTaskAttemptID().getTaskID().getId();
    String file = name.prefix() + "part-" + String.format("%05d", new Object[] {Integer.valueOf(task)}) + "-"
        + UUID.randomUUID() + name.suffix();
    String relative = directory.isDefined() ? directory.get() + "/" + file : file;
    files.add(relative);
    return new Path(path, relative).toString();
  }

  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, FileNameSpec name) {
    throw new UnsupportedOperationException("Millpond: partitions lie below the directory that is written to");
  }

  public FileCommitProtocol$TaskCommitMessage commitTask(TaskAttemptContext context) {
    StringBuilder out = new StringBuilder();
    TreeSet directories = new TreeSet();
    try {
      for (int at = 0; at < files.size(); at++) {
        File file = local((String) files.get(at));
        if (!file.exists()) continue;  // a format that writes no file for no rows
        sync(file, StandardOpenOption.WRITE);
        for (File above = file.getParentFile(); above != null && directories.add(above.getPath())
            && !above.equals(local(".")); above = above.getParentFile()) {}
        out.append(files.get(at)).append('\0').append(file.length()).append('\0');
      }
      for (java.util.Iterator each = directories.iterator(); each.hasNext();) {
        sync(new File((String) each.next()), StandardOpenOption.READ);
      }
    } catch (IOException error) {
      throw new RuntimeException("Millpond: what a task wrote is not safe on the disk: " + error, error);
    }
    return new FileCommitProtocol$TaskCommitMessage(out.toString());
  }

  public void abortTask(TaskAttemptContext context) {
    for (int at = 0; files != null && at < files.size(); at++) local((String) files.get(at)).delete();
  }

  public void commitJob(JobContext context, Seq messages) {
    StringBuilder out = new StringBuilder();
    for (scala.collection.Iterator each = messages.iterator(); each.hasNext();) {
      out.append(((FileCommitProtocol$TaskCommitMessage) each.next()).obj());
    }
    REPORTED.put(SparkContext.getOrCreate().getLocalProperty(WRITE), out.toString());
  }

  public void abortJob(JobContext context) {}

  private File local(String relative) {
    return new File(new Path(path, relative).toUri().getPath());
  }

  private static void sync(File file, OpenOption how) throws IOException {
    FileChannel channel = FileChannel.open(file.toPath(), new OpenOption[] {how});
    try {
      channel.force(true);
    } finally {
      channel.close();
    }
  }
}
