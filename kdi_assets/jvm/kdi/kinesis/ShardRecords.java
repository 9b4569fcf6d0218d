package kdi.kinesis;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.exception.SdkServiceException;
import software.amazon.awssdk.services.kinesis.KinesisClient;
import software.amazon.awssdk.services.kinesis.model.ExpiredIteratorException;
import software.amazon.awssdk.services.kinesis.model.GetRecordsResponse;
import software.amazon.awssdk.services.kinesis.model.GetShardIteratorRequest;
import software.amazon.awssdk.services.kinesis.model.ProvisionedThroughputExceededException;
import software.amazon.awssdk.services.kinesis.model.Record;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;

/**
 * The records of a range as rows, in the order of their sequence numbers, then one row about the whole.
 *
 * <p>A row has the columns of a message, and {@code sequence: string, stop: string, first: string, resumed:
 * array<string>, digest: string}. Records have only the first of these. The last row is the only one with {@code stop}:
 * {@code ended} if the shard is closed and was read to its end, {@code reached} if nothing else arrived in time, {@code
 * most} if there may be more. It has the number after the last record as its offset; arrival, sequence number and digest
 * of the last record; the sequence number of the first; and where the reader began again by itself, the sequence numbers
 * before and after that, with a blank between.
 */
final class ShardRecords implements Iterator<InternalRow> {
  private static final int PAGE = 10_000;
  /** A shard with few records may answer some 250 times without one. */
  private static final int MOST_EMPTY = 1_000;
  private static final int TRIES = 300;
  private static final int TRIES_WITHOUT_ANSWER = 3;
  private static final int PAUSE_MILLIS = 200;
  /** Of Kafka: the timestamp is the server's. */
  private static final int LOG_APPEND_TIME = 1;

  private final KinesisClient kinesis;
  private final UTF8String stream;
  private final ShardRange range;
  private final List<UTF8String> resumed = new ArrayList<>();
  /** Where the reader began again, until the next record comes. */
  private BigInteger resumedAfter;
  private BigInteger last;
  private Record first;
  private Record read;
  private Record next;
  private Iterator<Record> page = Collections.emptyIterator();
  /** Null once the shard was read to its end: the only proof of it; a closed shard may still have records. */
  private String iterator;
  private int empty;
  private boolean fetched;
  private boolean reached;
  private String stop;
  private boolean told;
  private long offset;

  ShardRecords(KinesisClient kinesis, String stream, ShardRange range) {
    this.kinesis = kinesis;
    this.stream = UTF8String.fromString(stream);
    this.range = range;
    this.offset = range.offset();
    BigInteger after = range.after().isEmpty() ? null : new BigInteger(range.after());
    this.last = range.inclusive() ? after.subtract(BigInteger.ONE) : after;
    this.iterator = answered(this::startingIterator);
  }

  @Override
  public boolean hasNext() {
    while (next == null && stop == null) {
      if (offset - range.offset() == range.most()) {
        stop = "most";
      } else if (page.hasNext()) {
        take(page.next());
      } else if (iterator == null) {
        stop = "ended";
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
    read = next;
    next = null;
    return row(read, offset++);
  }

  private void take(Record record) {
    BigInteger number = new BigInteger(record.sequenceNumber());
    if (last != null && number.compareTo(last) <= 0) {
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
    first = first == null ? record : first;
    last = number;
  }

  private void fetch() {
    if (fetched) {
      sleep(PAUSE_MILLIS); // a shard takes five calls a second, from all its readers together
    }
    fetched = true;
    int limit = (int) Math.min(PAGE, range.offset() + range.most() - offset);
    GetRecordsResponse answer = answered(() -> kinesis.getRecords(r -> r.shardIterator(iterator).limit(limit)));
    page = answer.records().iterator();
    iterator = answer.nextShardIterator();
    long behind = answer.millisBehindLatest();
    // Some streams are never 0 behind; an answer is as old as the server's time less what it is behind.
    reached = behind == 0 || now(answer) - behind > range.until();
    empty = page.hasNext() ? 0 : empty + 1;
    if (empty > MOST_EMPTY && iterator != null && !reached) {
      throw new IllegalStateException(range.shard() + " gave " + empty + " answers without a record or an end");
    }
  }

  private static long now(GetRecordsResponse answer) {
    return answer
        .sdkHttpResponse()
        .firstMatchingHeader("Date")
        .map(date -> ZonedDateTime.parse(date, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant().toEpochMilli())
        .orElse(Long.MIN_VALUE / 2);
  }

  private String startingIterator() {
    GetShardIteratorRequest.Builder request =
        GetShardIteratorRequest.builder().streamName(stream.toString()).shardId(range.shard());
    if (range.inclusive() && first == null) {
      request.shardIteratorType(ShardIteratorType.AT_SEQUENCE_NUMBER).startingSequenceNumber(range.after());
    } else if (last != null && !(range.horizon() && first == null)) {
      request.shardIteratorType(ShardIteratorType.AFTER_SEQUENCE_NUMBER).startingSequenceNumber(last.toString());
    } else if (range.at() < 0) {
      request.shardIteratorType(ShardIteratorType.TRIM_HORIZON);
    } else {
      request.shardIteratorType(ShardIteratorType.AT_TIMESTAMP).timestamp(Instant.ofEpochMilli(range.at()));
    }
    return kinesis.getShardIterator(request.build()).shardIterator();
  }

  private interface Call<T> {
    T answer();
  }

  /** Calls until there is an answer; the same call twice gives the same records. */
  private <T> T answered(Call<T> call) {
    for (int tries = 1; ; tries++) {
      try {
        return call.answer();
      } catch (ExpiredIteratorException expired) {
        if (tries == TRIES_WITHOUT_ANSWER) {
          throw expired;
        }
        iterator = answered(this::startingIterator);
        resumedAfter = first == null ? null : last; // before the first record, the edge is the range's own
      } catch (SdkException failed) {
        if (!mayPass(failed, tries)) {
          throw failed;
        }
      }
      sleep(PAUSE_MILLIS + ThreadLocalRandom.current().nextInt(PAUSE_MILLIS));
    }
  }

  private static boolean mayPass(SdkException failed, int tries) {
    if (failed instanceof ProvisionedThroughputExceededException) {
      return tries < TRIES;
    }
    boolean passes = failed instanceof SdkClientException || ((SdkServiceException) failed).statusCode() >= 500;
    return passes && tries < TRIES_WITHOUT_ANSWER;
  }

  private static void sleep(int millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException killed) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task was killed", killed);
    }
  }

  private InternalRow row(Record record, long at) {
    UTF8String number = UTF8String.fromString(record.sequenceNumber());
    return new GenericInternalRow(
        new Object[] {
          key(record), record.data().asByteArrayUnsafe(), stream, range.partition(), at, micros(record),
          LOG_APPEND_TIME, null, number, null, null, null, null
        });
  }

  private InternalRow whole() {
    boolean none = read == null;
    return new GenericInternalRow(
        new Object[] {
          null, null, stream, range.partition(), offset, none ? null : micros(read),
          LOG_APPEND_TIME, null, none ? null : UTF8String.fromString(read.sequenceNumber()),
          UTF8String.fromString(stop), none ? null : UTF8String.fromString(first.sequenceNumber()),
          new GenericArrayData(resumed.toArray()), none ? null : UTF8String.fromString(digest(read))
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
