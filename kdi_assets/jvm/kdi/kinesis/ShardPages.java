package kdi.kinesis;

import java.util.List;
import software.amazon.awssdk.services.kinesis.model.Record;

/** The answers about a shard, one after the other, from the beginning of a range on. */
interface ShardPages extends AutoCloseable {
  /**
   * The next answer; what fails and may pass is asked again.
   *
   * @param last the number of the last record taken from the answers before; null without one
   * @param most the records that are still wanted
   */
  Page next(String last, int most);

  @Override
  void close();

  /**
   * One answer.
   *
   * @param stop why none follows, as in {@link ShardRecords}; null: one does
   * @param reached whether all records that arrived in time are in this or an earlier answer
   * @param resumed whether reading began again after {@code last}
   * @param behind how far the answer is behind the end, in milliseconds
   */
  record Page(List<Record> records, String stop, boolean reached, boolean resumed, long behind) {}
}
