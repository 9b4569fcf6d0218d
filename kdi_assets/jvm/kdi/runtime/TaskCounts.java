package kdi.runtime;

import java.util.BitSet;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/**
 * Counts rows in the tasks of the first action that computes them, each task once.
 *
 * <p>Spark runs a task again if the executor that holds its shuffle data is lost, and reports its counts again; its own
 * Observation adds them. Both runs read the same rows.
 *
 * @param <C> the class itself
 */
public abstract class TaskCounts<C extends TaskCounts<C>> extends AccumulatorV2<C, C> {
  private static final int NONE = -1;

  /** Of a task, or of all that count; it stays if a task runs again, and is another one in another action. */
  private int stage = NONE;
  /** In a task: its number in its stage. */
  private int task = NONE;
  /** On the driver: the tasks whose counts are in these. */
  private final BitSet tasks = new BitSet();

  /** Registers this accumulator with Spark. */
  public final C registered(SparkContext context) {
    register(context, Option.empty(), false);
    return value();
  }

  /** Every task calls it before it counts a row. */
  protected final void inTask() {
    if (task == NONE) {
      TaskContext here = TaskContext.get();
      stage = here.stageId();
      task = here.partitionId();
    }
  }

  /** Another instance, without counts. */
  protected abstract C empty();

  /** Adds the counts of another instance to these. */
  protected abstract void addCounts(C more);

  @Override
  public final C copyAndReset() {
    return empty();
  }

  @Override
  public final C copy() {
    C copy = empty();
    TaskCounts<C> copied = copy;
    copied.stage = stage;
    copied.task = task;
    copied.tasks.or(tasks);
    copied.addCounts(value());
    return copy;
  }

  @Override
  public final void reset() {
    throw new UnsupportedOperationException("the counts are those of one action");
  }

  @Override
  public final void add(C more) {
    merge(more);
  }

  @Override
  public final void merge(AccumulatorV2<C, C> other) {
    TaskCounts<C> more = (TaskCounts<C>) other;
    if (more.task == NONE) {
      return; // it had no rows
    }
    if (stage == NONE) {
      stage = more.stage;
    }
    if (stage == more.stage && !tasks.get(more.task)) {
      tasks.set(more.task);
      addCounts(more.value());
    }
  }

  @Override
  @SuppressWarnings("unchecked")
  public final C value() {
    return (C) this;
  }

  /** Otherwise executors would send the counts every few seconds. */
  @Override
  public final boolean excludeFromHeartbeat() {
    return true;
  }
}
