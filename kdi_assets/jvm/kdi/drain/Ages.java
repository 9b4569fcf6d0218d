package kdi.drain;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;

/** Counts messages by their age at the plan of a drain, in buckets of a logarithmic scale. */
public final class Ages implements Serializable {
  private final long now;
  private final int perOctave;
  private final int lowest;
  private final int highest;
  private final long[] counts;

  /**
   * @param now in milliseconds since 1970
   * @param perOctave buckets for each doubling of the age
   * @param lowest bucket, also for younger messages
   * @param highest bucket, also for older messages
   */
  public Ages(long now, int perOctave, int lowest, int highest) {
    this.now = now;
    this.perOctave = perOctave;
    this.lowest = lowest;
    this.highest = highest;
    this.counts = new long[highest - lowest + 1];
  }

  Ages empty() {
    return new Ages(now, perOctave, lowest, highest);
  }

  /** @param written in microseconds since 1970; negative if the message has no timestamp */
  void add(long written) {
    if (written >= 0) {
      double seconds = (now - Math.floorDiv(written, 1000L)) / 1e3;
      double bucket = Math.floor(Math.log(Math.max(seconds, 1e-3)) / Math.log(2) * perOctave);
      counts[(int) Math.min(Math.max(bucket, lowest), highest) - lowest]++;
    }
  }

  void merge(Ages more) {
    for (int at = 0; at < counts.length; at++) {
      counts[at] += more.counts[at];
    }
  }

  /** Counts by bucket, without empty buckets. */
  Map<Integer, Long> counts() {
    Map<Integer, Long> byBucket = new TreeMap<>();
    for (int at = 0; at < counts.length; at++) {
      if (counts[at] > 0) {
        byBucket.put(lowest + at, counts[at]);
      }
    }
    return byBucket;
  }
}
