package kdi.kinesis;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;
import software.amazon.awssdk.services.kinesis.model.InvalidArgumentException;

/**
 * The records of consecutive spans of a shard: rows of {@link ShardRecords} without the one about the whole.
 *
 * <p>Each span is checked as soon as its last record was read: whoever asks for more, or for the end, gets an exception
 * if the records are not those that were read first. Retention may pass the first of them just now: then Kinesis goes on
 * with a later one, refuses, or gives empty answers without end.
 */
final class SpanRecords implements Iterator<InternalRow> {
  private final Iterator<InternalRow> rows;
  private final String stream;
  private final ShardRange range;
  private final long[] ends;
  private final long[] digests;
  private int span;
  private long start;
  private UTF8String last;
  private RecordCount count = new RecordCount();
  private InternalRow next;

  /** @param rows of the spans together, from the first record of the first one on */
  SpanRecords(Iterator<InternalRow> rows, String stream, Spans spans) {
    this.rows = rows;
    this.stream = stream;
    this.range = spans.range();
    this.ends = Spans.numbers(spans.ends());
    this.digests = Spans.numbers(spans.digests());
    this.start = range.offset();
  }

  @Override
  public boolean hasNext() {
    if (next == null && span < ends.length) {
      next = checked(read());
    }
    return next != null;
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    InternalRow row = next;
    next = null;
    if (row.getLong(RecordCount.OFFSET) + 1 >= ends[span]) {
      refuseOther();
    }
    return row;
  }

  private InternalRow read() {
    try {
      return rows.next();
    } catch (InvalidArgumentException | EndlessAnswers failed) {
      throw differs(failed.getMessage());
    }
  }

  private InternalRow checked(InternalRow row) {
    if (!row.isNullAt(RecordCount.STOP)) {
      throw differs("the shard has no more records after number " + (row.getLong(RecordCount.OFFSET) - 1));
    }
    count.add(row);
    last = row.getUTF8String(RecordCount.SEQUENCE);
    return row;
  }

  private void refuseOther() {
    if (count.digest() != digests[span]) {
      throw differs("their sequence numbers are others; the last one is " + last);
    }
    start = ends[span++];
    count = new RecordCount();
  }

  private SpanDiffers differs(String detail) {
    return new SpanDiffers(stream, range, start, detail);
  }
}
