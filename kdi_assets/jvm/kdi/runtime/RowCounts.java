package kdi.runtime;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Counts rows of several kinds. */
public final class RowCounts extends TaskCounts<RowCounts> {
  private final Map<Long, Long> byKind = new HashMap<>();

  /** Count a row; true, for a condition that keeps it. */
  public static boolean counted(RowCounts counts, long kind) {
    counts.inTask();
    counts.byKind.merge(kind, 1L, Long::sum);
    return true;
  }

  /** Pairs of a kind and the number of its rows, one after the other. */
  public List<Long> pairs() {
    List<Long> pairs = new ArrayList<>();
    byKind.forEach((kind, rows) -> pairs.addAll(List.of(kind, rows)));
    return pairs;
  }

  @Override
  public boolean isZero() {
    return byKind.isEmpty();
  }

  @Override
  protected RowCounts empty() {
    return new RowCounts();
  }

  @Override
  protected void addCounts(RowCounts more) {
    more.byKind.forEach((kind, rows) -> byKind.merge(kind, rows, Long::sum));
  }

  /** For plans. */
  @Override
  public String toString() {
    return "counts";
  }
}
