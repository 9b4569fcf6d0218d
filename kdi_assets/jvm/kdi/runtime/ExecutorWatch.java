package kdi.runtime;

import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;

/**
 * Cancels jobs that wait too long for an executor, for which Spark alone waits for ever.
 *
 * <p>Each job has its own wait, whoever owns it: one that has just begun may get the machine that is starting. Only the
 * jobs that follow one which waited in vain wait briefly for a while, or a run of many streams would wait for each.
 */
public final class ExecutorWatch extends SparkListener {
  private final SparkContext spark;
  private final long seconds;
  private final long secondsAgain;
  private final String reason;
  private final ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, ExecutorWatch::thread);
  /** The running jobs, and the end of the wait of those that wait; null for the others. */
  private final Map<Integer, Future<?>> jobs = new HashMap<>();
  private Instant brieflyUntil = Instant.MIN;

  private ExecutorWatch(SparkContext spark, long seconds, long secondsAgain, String reason) {
    this.spark = spark;
    this.seconds = seconds;
    this.secondsAgain = secondsAgain;
    this.reason = reason;
    timer.setRemoveOnCancelPolicy(true);
  }

  /**
   * Watch the jobs of a context on a cluster from now on.
   *
   * @param seconds how long a job waits
   * @param secondsAgain how long a job waits after one that waited in vain
   * @param reason of the cancellation, a format that takes the seconds, and what the cluster says
   */
  public static void begin(SparkContext spark, long seconds, long secondsAgain, String reason) {
    spark.addSparkListener(new ExecutorWatch(spark, seconds, secondsAgain, reason));
  }

  @Override
  public synchronized void onJobStart(SparkListenerJobStart job) {
    jobs.put(job.jobId(), null);
    awaitExecutor();
  }

  @Override
  public synchronized void onJobEnd(SparkListenerJobEnd job) {
    stop(jobs.remove(job.jobId()));
  }

  @Override
  public synchronized void onExecutorAdded(SparkListenerExecutorAdded executor) {
    brieflyUntil = Instant.MIN;
    jobs.replaceAll((job, wait) -> stop(wait));
  }

  @Override
  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved executor) {
    awaitExecutor();
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd application) {
    timer.shutdownNow();
  }

  /** Events come later than what they tell of, so the context is asked what is true now. */
  private boolean hasExecutor() {
    return spark.getExecutorIds().iterator().hasNext();
  }

  private void awaitExecutor() {
    if (!hasExecutor()) {
      jobs.replaceAll((job, wait) -> wait != null ? wait : awaitExecutor(job));
    }
  }

  private Future<?> awaitExecutor(int job) {
    boolean briefly = Instant.now().isBefore(brieflyUntil);
    return timer.schedule(() -> giveUp(job, briefly), briefly ? secondsAgain : seconds, TimeUnit.SECONDS);
  }

  private void giveUp(int job, boolean briefly) {
    Future<?> wait = waitOf(job);
    if (wait != null) {
      // Not under the lock, for which all events of Spark would wait.
      end(wait, job, briefly, said());
    }
  }

  /** What Kubernetes says of the pods; whatever fails here, the job must end. */
  private String said() {
    try {
      return hasExecutor() ? "" : ExecutorPods.said(spark);
    } catch (RuntimeException | LinkageError failed) {
      return "Kubernetes could not be asked: " + failed.getClass().getName();
    }
  }

  private synchronized Future<?> waitOf(int job) {
    return jobs.get(job);
  }

  private synchronized void end(Future<?> wait, int job, boolean briefly, String said) {
    if (jobs.get(job) != wait) {
      return; // the job has ended, or an executor came meanwhile, even if it is lost again
    }
    jobs.put(job, null);
    if (hasExecutor()) {
      return;
    }
    if (!briefly) {
      brieflyUntil = Instant.now().plus(Duration.ofSeconds(seconds));
    }
    spark.cancelJob(job, String.format(Locale.ROOT, reason, briefly ? secondsAgain : seconds, said));
  }

  private static Future<?> stop(Future<?> wait) {
    if (wait != null) {
      wait.cancel(false);
    }
    return null;
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "kdi: waits for an executor");
    thread.setDaemon(true);
    return thread;
  }
}
