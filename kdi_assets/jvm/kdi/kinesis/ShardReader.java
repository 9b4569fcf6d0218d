package kdi.kinesis;

import java.io.Serializable;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.TaskCompletionListener;

/** Reads shards in the tasks of a job, one shard a task. */
public final class ShardReader implements Serializable {
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
    ShardReader reader = new ShardReader(access, stream, consumer);
    FlatMapFunction<ShardRange, InternalRow> read = reader::records;
    return spark.parallelize(ranges, ranges.size()).flatMap(read).rdd();
  }

  /** The rows of {@link SpanRecords} of every element; shards are polled. */
  public static RDD<InternalRow> again(JavaSparkContext spark, List<Spans> spans, Access access, String stream) {
    ShardReader reader = new ShardReader(access, stream, "");
    FlatMapFunction<Spans, InternalRow> read = each -> new SpanRecords(reader.records(each.range()), stream, each);
    return spark.parallelize(spans, spans.size()).flatMap(read).rdd();
  }

  private Iterator<InternalRow> records(ShardRange range) {
    ShardPages pages =
        consumer.isEmpty()
            ? new PolledShard(access.client(), stream, range)
            : new SubscribedShard(access.streamingClient(), consumer, range);
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> pages.close());
    return new ShardRecords(pages, stream, range);
  }
}
