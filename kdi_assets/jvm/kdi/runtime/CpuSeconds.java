package kdi.runtime;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.spark.JobExecutionStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.status.api.v1.StageData;
import scala.Option;

/** CPU seconds of the JVM, of a thread, and of the tasks of a session's jobs, wherever these ran. */
public final class CpuSeconds {
  private static final double NANOS = 1e9;

  private final SparkContext spark;
  private final String tag;
  private final String group;
  private final Set<Integer> counted;
  private final Set<Integer> stages = new HashSet<>();
  private double seconds;

  /**
   * Counts the tasks of jobs that begin from now on.
   *
   * @param tag the session's own
   * @param group of its jobs, beside the tag, which jobs in other threads have instead; null: jobs without a group
   */
  public CpuSeconds(SparkContext spark, String tag, String group) {
    this.spark = spark;
    this.tag = tag;
    this.group = group;
    this.counted = jobs();
  }

  /** The sum so far; Spark keeps the last 50 jobs and stages, older ones must have been asked for. */
  public synchronized double ofTasks() {
    for (int job : jobs()) {
      Option<SparkJobInfo> info = spark.statusTracker().getJobInfo(job);
      if (!info.isDefined() || info.get().status() == JobExecutionStatus.RUNNING || !counted.add(job)) {
        continue;
      }
      for (int stage : info.get().stageIds()) {
        // A job names again the stages of earlier jobs whose shuffle it reads.
        seconds += stages.add(stage) ? ofStage(stage) : 0;
      }
    }
    return seconds;
  }

  /** Of the JVM since its start; 0 if the system does not tell. */
  public static double ofJvm() {
    return ProcessHandle.current().info().totalCpuDuration().map(Duration::toMillis).orElse(0L) / 1e3;
  }

  /** Of the thread that calls, since its start. */
  public static double ofThread() {
    return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() / NANOS;
  }

  private Set<Integer> jobs() {
    Set<Integer> jobs = new HashSet<>();
    Arrays.stream(spark.statusTracker().getJobIdsForGroup(group)).forEach(jobs::add);
    Arrays.stream(spark.statusTracker().getJobIdsForTag(tag)).forEach(jobs::add);
    return jobs;
  }

  private double ofStage(int stage) {
    try {
      StageData found = spark.statusStore().lastStageAttempt(stage);
      return (found.executorCpuTime() + found.executorDeserializeCpuTime()) / NANOS;
    } catch (NoSuchElementException forgotten) { // or the stage was skipped
      return 0;
    }
  }
}
