package kdi.runtime;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/**
 * Counts rows by a number, in the tasks of the first action that computes them.
 *
 * <p>Spark runs a task again if the executor that holds its shuffle data is lost, and reports its counts again; its own
 * Observation adds them. Here they count once.
 */
public final class RowCounts extends AccumulatorV2<RowCounts, RowCounts> {
  private static final int NONE = -1;

  private final Map<Long, Long> counts = new HashMap<>();
  /** Of a task, or of all that count; it stays if a task runs again, and is another one in another action. */
  private int stage = NONE;
  /** In a task: its number in its stage. */
  private int task = NONE;
  /** On the driver: the tasks whose counts are in these. */
  private final BitSet tasks = new BitSet();

  /** Registers this accumulator with Spark. */
  public RowCounts registered(SparkContext context) {
    register(context, Option.empty(), false);
    return this;
  }

  /** Count a row; true, for a condition that keeps it. */
  public static boolean counted(RowCounts counts, long number) {
    if (counts.task == NONE) {
      TaskContext here = TaskContext.get();
      counts.stage = here.stageId();
      counts.task = here.partitionId();
    }
    counts.counts.merge(number, 1L, Long::sum);
    return true;
  }

  /** Pairs of a number and its rows, one after the other. */
  public List<Long> pairs() {
    List<Long> pairs = new ArrayList<>();
    counts.forEach((number, rows) -> pairs.addAll(List.of(number, rows)));
    return pairs;
  }

  @Override
  public boolean isZero() {
    return counts.isEmpty();
  }

  @Override
  public RowCounts copy() {
    RowCounts copy = new RowCounts();
    copy.stage = stage;
    copy.task = task;
    copy.tasks.or(tasks);
    copy.counts.putAll(counts);
    return copy;
  }

  @Override
  public RowCounts copyAndReset() {
    return new RowCounts();
  }

  @Override
  public void reset() {
    throw new UnsupportedOperationException("the counts are those of one action");
  }

  @Override
  public void add(RowCounts more) {
    merge(more);
  }

  @Override
  public void merge(AccumulatorV2<RowCounts, RowCounts> other) {
    RowCounts more = (RowCounts) other;
    if (more.task == NONE) {
      return; // it had no rows
    }
    if (stage == NONE) {
      stage = more.stage;
    }
    if (stage != more.stage || tasks.get(more.task)) {
      return;
    }
    tasks.set(more.task);
    more.counts.forEach((number, rows) -> counts.merge(number, rows, Long::sum));
  }

  @Override
  public RowCounts value() {
    return this;
  }

  /** Otherwise executors would send the counts every few seconds. */
  @Override
  public boolean excludeFromHeartbeat() {
    return true;
  }

  /** For plans. */
  @Override
  public String toString() {
    return "counts";
  }
}
