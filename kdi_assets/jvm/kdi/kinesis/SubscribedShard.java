package kdi.kinesis;

import java.time.Instant;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ResourceInUseException;
import software.amazon.awssdk.services.kinesis.model.ResourceNotFoundException;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.StartingPosition;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEventStream;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/** The events of SubscribeToShard, "enhanced fan-out": a consumer's own throughput of a shard. */
final class SubscribedShard implements ShardPages {
  /** Kinesis refuses a subscription within five seconds of the one before; later, it ends the one before. */
  private static final int TAKEOVER_MILLIS = 5_000;
  /** An idle shard has an event every few seconds. */
  private static final int SILENCE_SECONDS = 30;
  private static final int SECOND = 1_000;

  private final KinesisAsyncClient kinesis;
  private final String consumer;
  private final ShardRange range;
  private final long begun = System.nanoTime();
  /** Null until the first event: where reading is, also on a shard that had no record for long. */
  private String continuation;
  private Events open;
  private boolean subscribed;

  /** @param consumer its ARN */
  SubscribedShard(KinesisAsyncClient kinesis, String consumer, ShardRange range) {
    this.kinesis = kinesis;
    this.consumer = consumer;
    this.range = range;
  }

  @Override
  public Page next(String last, int most) {
    boolean resumed = false;
    boolean refused = false;
    int failures = 0;
    while (true) {
      try {
        if (open == null) {
          resumed = subscribed;
          open = subscribe();
        }
        SubscribeToShardEvent event = open.next();
        if (event != null) {
          return page(event, resumed);
        }
        leave(); // it ends after five minutes
        refused = false;
        Retries.waitAbout(Retries.PAUSE_MILLIS);
        if (++failures >= Retries.TRIES_WITHOUT_ANSWER) {
          throw SdkClientException.create("subscriptions to " + range.shard() + " end without an event");
        }
      } catch (ResourceInUseException inUse) {
        boolean takenOver = open != null && open.answered;
        leave();
        if (takenOver || refused) {
          return last("taken");
        }
        refused = true; // maybe by a subscription of our own, which has just ended
        Retries.waitAbout(TAKEOVER_MILLIS);
      } catch (ResourceNotFoundException gone) {
        leave();
        return last("gone");
      } catch (SdkException failed) {
        refused &= open == null || !open.answered; // once answered, the next refusal is again maybe our own
        leave();
        if (!Retries.mayPass(failed, ++failures)) {
          throw Retries.named(failed);
        }
        Retries.waitAbout(Retries.PAUSE_MILLIS);
      }
    }
  }

  @Override
  public void close() {
    leave();
    kinesis.close();
  }

  private Page page(SubscribeToShardEvent event, boolean resumed) {
    if (event.continuationSequenceNumber() != null) {
      continuation = event.continuationSequenceNumber();
    }
    long behind = event.millisBehindLatest();
    // Some streams are never 0 behind, and events do not tell the server's time. It was `until` a second after the plan
    // at the latest: the plan knows it in whole seconds, rounded up.
    boolean reached = behind == 0 || TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun) - SECOND > behind;
    // Children are the only proof that a shard was read to its end, and after it there is nothing to subscribe to.
    return new Page(event.records(), event.childShards().isEmpty() ? null : "ended", reached, resumed, behind);
  }

  private static Page last(String stop) {
    return new Page(List.of(), stop, false, false, 0);
  }

  private Events subscribe() {
    StartingPosition.Builder start = StartingPosition.builder();
    String after = continuation == null ? range.startsAfter() : continuation;
    if (!after.isEmpty()) {
      start.type(ShardIteratorType.AFTER_SEQUENCE_NUMBER).sequenceNumber(after);
    } else if (range.at() < 0) {
      start.type(ShardIteratorType.TRIM_HORIZON);
    } else {
      start.type(ShardIteratorType.AT_TIMESTAMP).timestamp(Instant.ofEpochMilli(range.at()));
    }
    Events events = new Events();
    SubscribeToShardResponseHandler handler =
        SubscribeToShardResponseHandler.builder()
            .onResponse(answer -> events.answered = true)
            .onEventStream(stream -> stream.subscribe(events))
            .build();
    events.call =
        kinesis.subscribeToShard(
            r -> r.consumerARN(consumer).shardId(range.shard()).startingPosition(start.build()), handler);
    events.call.exceptionally(events::end); // what is refused has no events
    subscribed = true;
    return events;
  }

  private void leave() {
    if (open != null) {
      open.cancel();
      open = null;
    }
  }

  /** One subscription; the SDK's threads put its events into a queue, one ahead of the reader. */
  private static final class Events implements Subscriber<SubscribeToShardEventStream> {
    private static final Object END = new Object();

    private final BlockingQueue<Object> signals = new LinkedBlockingQueue<>();
    private CompletableFuture<Void> call;
    private volatile Subscription source;
    private volatile boolean answered;

    /** The next event; null: the subscription has ended. */
    SubscribeToShardEvent next() {
      while (true) {
        Object signal = await();
        if (signal == END) {
          return null;
        }
        if (signal instanceof SdkException failed) {
          throw failed;
        }
        source.request(1);
        if (signal instanceof SubscribeToShardEvent event) {
          return event;
        }
      }
    }

    private Object await() {
      try {
        Object signal = signals.poll(SILENCE_SECONDS, TimeUnit.SECONDS);
        return signal == null ? SdkClientException.create("no event in " + SILENCE_SECONDS + " s") : signal;
      } catch (InterruptedException killed) {
        throw Retries.killed(killed);
      }
    }

    void cancel() {
      if (source != null) {
        source.cancel();
      }
      call.cancel(true);
    }

    Void end(Throwable failed) {
      Throwable cause = failed instanceof CompletionException ? failed.getCause() : failed;
      boolean known = cause instanceof SdkException;
      signals.add(known ? cause : SdkClientException.create("the subscription broke: " + cause, cause));
      return null;
    }

    @Override
    public void onSubscribe(Subscription subscription) {
      source = subscription;
      subscription.request(1);
    }

    @Override
    public void onNext(SubscribeToShardEventStream event) {
      signals.add(event);
    }

    @Override
    public void onError(Throwable failed) {
      end(failed);
    }

    @Override
    public void onComplete() {
      signals.add(END);
    }
  }
}
