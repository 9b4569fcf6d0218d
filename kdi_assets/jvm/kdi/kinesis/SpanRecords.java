package kdi.kinesis;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The records of consecutive spans of a shard: rows of {@link ShardRecords} without the one about the whole.
 *
 * <p>Each span is checked as soon as its last record was read: whoever asks for more, or for the end, gets an exception
 * if the records are not those that were read first.
 */
final class SpanRecords implements Iterator<InternalRow> {
  private static final int TOPIC = 2;
  private static final int OFFSET = 4;
  private static final int SEQUENCE = 8;
  private static final int STOP = 10;
  private static final long SEED = 42;

  private final Iterator<InternalRow> rows;
  private final String shard;
  private final long[] ends;
  private final long[] digests;
  private int span;
  private long start;
  private UTF8String last;
  private long digest;
  private InternalRow next;

  /** @param rows of the spans together, from the first record of the first one on */
  SpanRecords(Iterator<InternalRow> rows, Spans spans) {
    this.rows = rows;
    this.shard = spans.range().shard();
    this.ends = Spans.numbers(spans.ends());
    this.digests = Spans.numbers(spans.digests());
    this.start = spans.range().offset();
  }

  @Override
  public boolean hasNext() {
    if (next == null && span < ends.length) {
      next = checked(rows.next());
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
    if (row.getLong(OFFSET) + 1 >= ends[span]) {
      refuseOther(row);
    }
    return row;
  }

  private InternalRow checked(InternalRow row) {
    if (!row.isNullAt(STOP)) {
      throw differs(row, "the shard has no more records after number " + (row.getLong(OFFSET) - 1));
    }
    UTF8String sequence = row.getUTF8String(SEQUENCE);
    if (!sequence.equals(last)) { // user records of an aggregate have one sequence number
      Object bytes = sequence.getBaseObject();
      digest ^= XXH64.hashUnsafeBytes(bytes, sequence.getBaseOffset(), sequence.numBytes(), SEED);
      last = sequence;
    }
    return row;
  }

  private void refuseOther(InternalRow row) {
    if (digest != digests[span]) {
      throw differs(row, "their sequence numbers are others; the last one is " + last);
    }
    start = ends[span++];
    digest = 0;
  }

  private SpanDiffers differs(InternalRow row, String detail) {
    return new SpanDiffers(row.getUTF8String(TOPIC), shard, start, detail);
  }
}
