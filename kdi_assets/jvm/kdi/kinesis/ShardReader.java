package kdi.kinesis;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.TaskCompletionListener;

/** Reads shards in the tasks of a job, one shard a task. */
public final class ShardReader implements FlatMapFunction<ShardRange, InternalRow> {
  private static final long serialVersionUID = 1L;

  private final Access access;
  private final String stream;
  private final String consumer;

  private ShardReader(Access access, String stream, String consumer) {
    this.access = access;
    this.stream = stream;
    this.consumer = consumer;
  }

  /**
   * The rows of {@link ShardRecords} of every range.
   *
   * @param consumer the ARN of the consumer that subscribes to the shards; empty: they are polled
   */
  public static RDD<InternalRow> rows(
      JavaSparkContext spark, List<ShardRange> ranges, Access access, String stream, String consumer) {
    return spark.parallelize(ranges, ranges.size()).flatMap(new ShardReader(access, stream, consumer)).rdd();
  }

  @Override
  public Iterator<InternalRow> call(ShardRange range) {
    ShardPages pages =
        consumer.isEmpty()
            ? new PolledShard(access.client(), stream, range)
            : new SubscribedShard(access.streamingClient(), consumer, range);
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> pages.close());
    return new ShardRecords(pages, stream, range);
  }
}
