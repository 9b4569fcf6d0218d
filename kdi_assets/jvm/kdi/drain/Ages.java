package kdi.drain;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;

/** How many messages had which age when a drain was planned: in buckets, so many to each doubling of the age. */
public final class Ages implements Serializable {
  private final long now;
  private final int perOctave;
  private final int lowest;
  private final int highest;
  private final long[] counts;

  /**
   * @param now in milliseconds since 1970
   * @param lowest bucket, which has all that are younger
   * @param highest bucket, which has all that are older
   */
  public Ages(long now, int perOctave, int lowest, int highest) {
    this.now = now;
    this.perOctave = perOctave;
    this.lowest = lowest;
    this.highest = highest;
    this.counts = new long[highest - lowest + 1];
  }

  Ages none() {
    return new Ages(now, perOctave, lowest, highest);
  }

  /** @param written in microseconds since 1970; before that stands Kafka's "no timestamp" */
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

  /** By bucket; of those that have messages. */
  Map<Integer, Long> counts() {
    Map<Integer, Long> told = new TreeMap<>();
    for (int at = 0; at < counts.length; at++) {
      if (counts[at] > 0) {
        told.put(lowest + at, counts[at]);
      }
    }
    return told;
  }
}
