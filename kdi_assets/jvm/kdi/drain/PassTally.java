package kdi.drain;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import kdi.runtime.TaskCounts;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;

/** Counts the messages of a pass in its tasks. */
public final class PassTally extends TaskCounts<PassTally> {
  private static final int ROW = 0;
  private static final int VERDICTS = 4;
  /** Of Spark's {@code xxhash64}. */
  private static final long SEED = 42L;

  private final StructType letterType;
  private final long[] byVerdict = new long[VERDICTS];
  private final long[] digests = new long[VERDICTS];
  private long rows;
  private long bytes;
  private long unknownSchemas;
  /** Messages by topic partition and verdict, without rows. */
  private final Map<Integer, long[]> others = new TreeMap<>();
  private final Ages ages;
  private final Names unknown = new Names();
  private final Names misfits = new Names();
  private final Names unmet = new Names();
  private final Letters letters;

  /**
   * @param ages the empty counter of ages
   * @param letterType the type of a dead letter
   * @param mostBytes of dead letters; if there are more, none is kept
   */
  public PassTally(Ages ages, StructType letterType, long mostBytes) {
    this.ages = ages;
    this.letterType = letterType;
    this.letters = new Letters(letterType, mostBytes);
  }

  /**
   * Count a message.
   *
   * @param written its timestamp, in microseconds since 1970
   * @param becomes the number of its rows, if the verdict is row
   * @param unknown paths of the fields that the record lacks; null if there are none
   * @param misfits paths of the fields that were left out; null if there are none
   * @param unmet names of the expectations that it does not meet; null if there are none
   * @param letter the dead letter; null for other verdicts
   * @return whether the verdict is row
   */
  public static boolean counted(
      PassTally tally,
      int verdict,
      int partition,
      long offset,
      long written,
      int becomes,
      int bytes,
      boolean unknownSchema,
      ArrayData unknown,
      ArrayData misfits,
      ArrayData unmet,
      InternalRow letter) {
    tally.count(verdict, partition, offset);
    tally.bytes += bytes;
    tally.ages.add(written);
    if (unknownSchema) {
      tally.unknownSchemas++;
    }
    if (unknown != null) {
      tally.unknown.add(unknown, partition, offset);
    }
    if (misfits != null) {
      tally.misfits.add(misfits, partition, offset);
    }
    if (unmet != null) {
      tally.unmet.add(unmet, partition, offset);
    }
    if (letter != null) {
      tally.letters.add(letter);
    }
    if (verdict == ROW) {
      tally.rows += becomes;
    }
    return verdict == ROW;
  }

  private void count(int verdict, int partition, long offset) {
    inTask();
    byVerdict[verdict]++;
    digests[verdict] ^= XXH64.hashLong(offset, XXH64.hashInt(partition, SEED));
    if (verdict != ROW) {
      others.computeIfAbsent(partition, p -> new long[VERDICTS])[verdict]++;
    }
  }

  /** The messages of the tasks that have ended; may be called while others run, for progress. */
  public long messages() {
    long messages = 0;
    for (long count : byVerdict) {
      messages += count;
    }
    return messages;
  }

  /** All counts, as JSON. */
  public String toJson() throws JsonProcessingException {
    Map<String, Object> counts = new LinkedHashMap<>();
    counts.put("by_verdict", byVerdict);
    counts.put("digests", digests);
    counts.put("rows", rows);
    counts.put("bytes", bytes);
    counts.put("unknown_schemas", unknownSchemas);
    counts.put("others", others);
    counts.put("ages", ages.counts());
    counts.put("unknown", unknown.asMap());
    counts.put("misfits", misfits.asMap());
    counts.put("unmet", unmet.asMap());
    return new ObjectMapper().writeValueAsString(counts);
  }

  /** The dead letters in the order of their offsets; null if they are too many. */
  public Dataset<Row> letters(SparkSession session) {
    return letters.frame(session);
  }

  @Override
  public boolean isZero() {
    return messages() == 0;
  }

  @Override
  protected PassTally empty() {
    return new PassTally(ages.empty(), letterType, letters.mostBytes());
  }

  @Override
  protected void addCounts(PassTally more) {
    for (int verdict = 0; verdict < VERDICTS; verdict++) {
      byVerdict[verdict] += more.byVerdict[verdict];
      digests[verdict] ^= more.digests[verdict];
    }
    rows += more.rows;
    bytes += more.bytes;
    unknownSchemas += more.unknownSchemas;
    more.others.forEach((partition, counts) -> {
      long[] sum = others.computeIfAbsent(partition, p -> new long[VERDICTS]);
      for (int verdict = 0; verdict < VERDICTS; verdict++) {
        sum[verdict] += counts[verdict];
      }
    });
    ages.merge(more.ages);
    unknown.merge(more.unknown);
    misfits.merge(more.misfits);
    unmet.merge(more.unmet);
    letters.merge(more.letters);
  }

  /** For plans. */
  @Override
  public String toString() {
    return "tally";
  }
}
