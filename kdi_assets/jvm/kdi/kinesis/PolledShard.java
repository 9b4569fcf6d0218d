package kdi.kinesis;

import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.services.kinesis.KinesisClient;
import software.amazon.awssdk.services.kinesis.model.ExpiredIteratorException;
import software.amazon.awssdk.services.kinesis.model.GetRecordsResponse;
import software.amazon.awssdk.services.kinesis.model.GetShardIteratorRequest;
import software.amazon.awssdk.services.kinesis.model.Record;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;

/** The answers of GetRecords: the calls that all readers of a shard share. */
final class PolledShard implements ShardPages {
  private static final int PAGE = 10_000;
  /** What a shard gives in a second, to all its readers together; after more than that, it refuses calls. */
  private static final int BYTES = 2 << 20;

  private final KinesisClient kinesis;
  private final String stream;
  private final ShardRange range;
  private String iterator;
  private String last;
  private boolean resumed;
  /** By System.nanoTime; null before the first answer. */
  private Long mayAskAt;

  PolledShard(KinesisClient kinesis, String stream, ShardRange range) {
    this.kinesis = kinesis;
    this.stream = stream;
    this.range = range;
  }

  @Override
  public Page next(String last, int most) {
    this.last = last;
    resumed = false;
    if (mayAskAt == null) {
      iterator = answered(this::startingIterator);
    } else {
      Retries.sleep((int) Math.max(0, TimeUnit.NANOSECONDS.toMillis(mayAskAt - System.nanoTime())));
    }
    int limit = Math.min(PAGE, most);
    GetRecordsResponse answer = answered(() -> kinesis.getRecords(r -> r.shardIterator(iterator).limit(limit)));
    iterator = answer.nextShardIterator();
    // Five calls a second, too, from all its readers together.
    long pause = Math.max(Retries.PAUSE_MILLIS, 1 + size(answer) * 1000 / BYTES);
    mayAskAt = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pause);
    long behind = answer.millisBehindLatest();
    // Some streams are never 0 behind; an answer is as old as the server's time less what it is behind.
    boolean reached = behind == 0 || now(answer) - behind > range.until();
    // No iterator is the only proof that a shard was read to its end; a closed shard may still have records.
    return new Page(answer.records(), iterator == null ? "ended" : null, reached, resumed, behind);
  }

  @Override
  public void close() {
    kinesis.close();
  }

  private static long size(GetRecordsResponse answer) {
    long size = 0;
    for (Record record : answer.records()) {
      size += record.data().asByteArrayUnsafe().length + (record.partitionKey() == null ? 0 : record.partitionKey().length());
    }
    return size;
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
        GetShardIteratorRequest.builder().streamName(stream).shardId(range.shard());
    String after = last == null ? range.startsAfter() : last;
    if (range.inclusive() && last == null) {
      request.shardIteratorType(ShardIteratorType.AT_SEQUENCE_NUMBER).startingSequenceNumber(range.after());
    } else if (!after.isEmpty()) {
      request.shardIteratorType(ShardIteratorType.AFTER_SEQUENCE_NUMBER).startingSequenceNumber(after);
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
    int throttles = 0;
    int failures = 0;
    while (true) {
      try {
        return call.answer();
      } catch (ExpiredIteratorException expired) {
        if (++failures == Retries.TRIES_WITHOUT_ANSWER) {
          throw expired;
        }
        iterator = answered(this::startingIterator);
        resumed = true;
      } catch (SdkException failed) {
        if (!Retries.mayPass(failed, Retries.isThrottle(failed) ? ++throttles : ++failures)) {
          throw Retries.named(failed);
        }
      }
      Retries.waitAbout(Retries.PAUSE_MILLIS);
    }
  }
}
