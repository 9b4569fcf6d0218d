package kdi.kinesis;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;
import software.amazon.awssdk.services.kinesis.model.Record;

/**
 * The records of a range as rows, in the order of their sequence numbers, then one row about the whole.
 *
 * <p>A row has the columns of a message, among them {@code sequence_number: string} and {@code subsequence_number:
 * int}, and {@code stop: string, first: string, resumed: array<string>, digest: string, user_records: int, wrong_shard:
 * boolean}. An aggregate is a row for each of its user records, which share its sequence number; these have their number
 * in it, how many there are, and whether another shard should have it; the last one has the aggregate's digest.
 *
 * <p>The last row is the only one with {@code stop}: {@code ended} if the shard is closed and was read to its end, {@code
 * reached} if nothing else arrived in time, {@code most} if there may be more, {@code taken} if another subscription of the
 * consumer began, {@code gone} if the consumer or the shard is no longer there. It has the number after the last record as
 * its offset; arrival, sequence number and digest of the last record; the sequence number of the first; and where the
 * reader began again by itself, the sequence numbers before and after that, with a blank between, and none after it if the
 * shard ended without another.
 */
final class ShardRecords implements Iterator<InternalRow> {
  /** Answers without a record that come no nearer to the end. Of a day without records there may be some 250 that do. */
  private static final int MOST_EMPTY = 1_000;
  /** Of Kafka: the timestamp is the server's. */
  private static final int LOG_APPEND_TIME = 1;

  private final ShardPages pages;
  private final UTF8String stream;
  private final ShardRange range;
  private final List<UTF8String> resumed = new ArrayList<>();
  /** Where the reader began again, until the next record comes. */
  private String resumedAfter;
  private String last;
  private Record first;
  private Record read;
  private Record next;
  /** Of the next record; null if it is none. */
  private Aggregate aggregate;
  /** The number of the next user record in it. */
  private int user;
  private Iterator<Record> page = Collections.emptyIterator();
  private String afterPage;
  private int empty;
  /** Of the answers since the last record, how far the nearest one is behind. */
  private long least = Long.MAX_VALUE;
  private boolean reached;
  private String stop;
  private boolean told;
  private long offset;

  ShardRecords(ShardPages pages, String stream, ShardRange range) {
    this.pages = pages;
    this.stream = UTF8String.fromString(stream);
    this.range = range;
    this.offset = range.offset();
    this.last = range.lastBefore();
  }

  @Override
  public boolean hasNext() {
    while (next == null && stop == null) {
      if (offset - range.offset() >= range.most()) {
        stop = "most";
      } else if (page.hasNext()) {
        take(page.next());
      } else if (afterPage != null) {
        stop = afterPage;
      } else if (reached) {
        stop = "reached";
      } else {
        fetch();
      }
    }
    return next != null || !told;
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    if (next == null) {
      told = true;
      return whole();
    }
    InternalRow row = aggregate == null ? row() : userRow();
    offset++;
    user++;
    if (aggregate == null || user == aggregate.size()) {
      read = next;
      next = null;
    }
    return row;
  }

  private void take(Record record) {
    String number = record.sequenceNumber();
    if (last != null && !isAfter(number, last)) {
      return; // an answer may come twice, and from the horizon on, reading begins before the last record
    }
    if (record.approximateArrivalTimestamp().toEpochMilli() > range.until()) {
      stop = "reached";
      return;
    }
    if (resumedAfter != null) {
      resumed.add(UTF8String.fromString(resumedAfter + " " + number));
      resumedAfter = null;
    }
    next = record;
    aggregate = Aggregate.of(record.data().asByteArrayUnsafe());
    user = 0;
    first = first == null ? record : first;
    last = number;
  }

  /** Numbers have no leading zeros: of two, the longer text is the larger one. */
  private static boolean isAfter(String number, String other) {
    int longer = number.length() - other.length();
    return longer > 0 || longer == 0 && number.compareTo(other) > 0;
  }

  private void fetch() {
    int most = (int) Math.min(Integer.MAX_VALUE, range.offset() + range.most() - offset);
    ShardPages.Page answer = pages.next(first == null ? null : last, most);
    page = answer.records().iterator();
    afterPage = answer.stop();
    reached = answer.reached();
    if (answer.resumed() && first != null) { // before the first record, the edge is the range's own
      resumedAfter = last;
    }
    empty = page.hasNext() || answer.behind() < least ? 0 : empty + 1;
    least = page.hasNext() ? Long.MAX_VALUE : Math.min(least, answer.behind());
    if (empty > MOST_EMPTY && afterPage == null && !reached) {
      throw new EndlessAnswers(range.shard() + " gave " + empty + " answers without a record, no nearer to an end");
    }
  }

  private InternalRow row() {
    return row(key(next), next.data().asByteArrayUnsafe(), null, null, null, null);
  }

  private InternalRow userRow() {
    boolean isLast = user == aggregate.size() - 1;
    boolean isElsewhere = !aggregate.isBetween(user, range.firstHashKey(), range.lastHashKey());
    UTF8String digest = isLast ? UTF8String.fromString(digest(next)) : null;
    return row(aggregate.key(user), aggregate.data(user), digest, user, aggregate.size(), isElsewhere);
  }

  private InternalRow row(
      byte[] key, byte[] data, UTF8String digest, Integer subsequence, Integer users, Boolean isElsewhere) {
    UTF8String number = UTF8String.fromString(next.sequenceNumber());
    return new GenericInternalRow(
        new Object[] {
          key, data, stream, range.partition(), offset, micros(next), LOG_APPEND_TIME, null,
          number, subsequence, null, null, null, digest, users, isElsewhere
        });
  }

  private InternalRow whole() {
    boolean none = read == null;
    if (resumedAfter != null && stop.equals("ended")) {
      resumed.add(UTF8String.fromString(resumedAfter + " "));
    }
    return new GenericInternalRow(
        new Object[] {
          null, null, stream, range.partition(), offset, none ? null : micros(read),
          LOG_APPEND_TIME, null, none ? null : UTF8String.fromString(read.sequenceNumber()), null,
          UTF8String.fromString(stop), none ? null : UTF8String.fromString(first.sequenceNumber()),
          new GenericArrayData(resumed.toArray()), none ? null : UTF8String.fromString(digest(read)),
          null, null
        });
  }

  private static byte[] key(Record record) {
    return record.partitionKey() == null ? null : record.partitionKey().getBytes(StandardCharsets.UTF_8);
  }

  private static long micros(Record record) {
    return record.approximateArrivalTimestamp().toEpochMilli() * 1000;
  }

  /** The same as of {@code sources.kinesis.client.digest_of}. */
  private static String digest(Record record) {
    byte[] key = key(record);
    byte[] data = record.data().asByteArrayUnsafe();
    try {
      MessageDigest sha = MessageDigest.getInstance("SHA-256");
      for (byte[] part : new byte[][] {key, data}) {
        sha.update(((part == null ? -1 : part.length) + ":").getBytes(StandardCharsets.UTF_8));
        sha.update(part == null ? new byte[0] : part);
      }
      return HexFormat.of().formatHex(sha.digest(), 0, 8);
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing);
    }
  }
}
