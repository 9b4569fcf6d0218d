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
import software.amazon.awssdk.services.kinesis.KinesisClient;

/** Reads shards in the tasks of a job, one shard a task. */
public final class ShardReader implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Access access;
  private final String stream;

  private ShardReader(Access access, String stream) {
    this.access = access;
    this.stream = stream;
  }

  /** The rows of {@link ShardRecords} of every range. */
  public static RDD<InternalRow> rows(JavaSparkContext spark, List<ShardRange> ranges, Access access, String stream) {
    ShardReader reader = new ShardReader(access, stream);
    FlatMapFunction<ShardRange, InternalRow> read = reader::records;
    return spark.parallelize(ranges, ranges.size()).flatMap(read).rdd();
  }

  /** The rows of {@link SpanRecords} of every element. */
  public static RDD<InternalRow> again(JavaSparkContext spark, List<Spans> spans, Access access, String stream) {
    ShardReader reader = new ShardReader(access, stream);
    FlatMapFunction<Spans, InternalRow> read = each -> new SpanRecords(reader.records(each.range()), each);
    return spark.parallelize(spans, spans.size()).flatMap(read).rdd();
  }

  private Iterator<InternalRow> records(ShardRange range) {
    KinesisClient client = access.client();
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> client.close());
    return new ShardRecords(client, stream, range);
  }
}
