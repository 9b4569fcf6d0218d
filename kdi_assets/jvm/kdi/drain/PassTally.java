package kdi.drain;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/**
 * What a pass over messages saw, counted in the tasks that judge them and added up by Spark: of each task that ended
 * well, once.
 */
public final class PassTally extends AccumulatorV2<PassTally, PassTally> {
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
  /** By topic partition, the messages of each verdict; of those that have another one than row. */
  private final Map<Integer, long[]> others = new TreeMap<>();
  private final Ages ages;
  private final Names unknown = new Names();
  private final Names misfits = new Names();
  private final Names unmet = new Names();
  private final Letters letters;

  /**
   * @param ages how the ages of messages are counted
   * @param letterType of a dead letter
   * @param mostBytes of dead letters that are kept; of more, none is
   */
  public PassTally(Ages ages, StructType letterType, long mostBytes) {
    this.ages = ages;
    this.letterType = letterType;
    this.letters = new Letters(letterType, mostBytes);
  }

  /** The same, known to Spark. */
  public PassTally registered(SparkContext context) {
    register(context, Option.empty(), false);
    return this;
  }

  /**
   * Count a message.
   *
   * @param written by its timestamp, in microseconds since 1970
   * @param becomes rows of it, if it becomes some
   * @param unknown paths of the fields that the record has not; null if there are none
   * @param misfits paths of the fields that were left out; null if there are none
   * @param unmet names of the expectations that it does not meet; null if there are none
   * @param letter what is kept of a dead letter; null of any other message
   * @return whether it becomes rows
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
    byVerdict[verdict]++;
    digests[verdict] ^= XXH64.hashLong(offset, XXH64.hashInt(partition, SEED));
    if (verdict != ROW) {
      others.computeIfAbsent(partition, p -> new long[VERDICTS])[verdict]++;
    }
  }

  /** All but the dead letters, as JSON. */
  public String told() throws JsonProcessingException {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("by_verdict", byVerdict);
    told.put("digests", digests);
    told.put("rows", rows);
    told.put("bytes", bytes);
    told.put("unknown_schemas", unknownSchemas);
    told.put("others", others);
    told.put("ages", ages.counts());
    told.put("unknown", unknown.told());
    told.put("misfits", misfits.told());
    told.put("unmet", unmet.told());
    return new ObjectMapper().writeValueAsString(told);
  }

  /** The dead letters, in the order of their offsets; null if they are too many to be kept. */
  public Dataset<Row> letters(SparkSession session) {
    return letters.frame(session);
  }

  @Override
  public boolean isZero() {
    long messages = 0;
    for (long count : byVerdict) {
      messages += count;
    }
    return messages == 0;
  }

  @Override
  public PassTally copy() {
    PassTally copy = copyAndReset();
    copy.merge(this);
    return copy;
  }

  @Override
  public PassTally copyAndReset() {
    return new PassTally(ages.none(), letterType, letters.mostBytes());
  }

  @Override
  public void reset() {
    throw new UnsupportedOperationException("a tally is of one pass");
  }

  @Override
  public void add(PassTally more) {
    merge(more);
  }

  @Override
  public void merge(AccumulatorV2<PassTally, PassTally> other) {
    PassTally more = (PassTally) other;
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

  @Override
  public PassTally value() {
    return this;
  }

  /** Executors would send what they hold so far every few seconds. */
  @Override
  public boolean excludeFromHeartbeat() {
    return true;
  }

  /** Plans show it. */
  @Override
  public String toString() {
    return "tally";
  }
}
