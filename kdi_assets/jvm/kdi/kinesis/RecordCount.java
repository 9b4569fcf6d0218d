package kdi.kinesis;

import java.io.Serializable;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/** How many rows of {@link ShardRecords} are records of a shard, the number of the first, and a digest of all. */
final class RecordCount {
  static final int STREAM = 2;
  static final int PARTITION = 3;
  static final int OFFSET = 4;
  static final int SEQUENCE = 8;
  static final int SUBSEQUENCE = 9;
  static final int STOP = 10;
  /** Of Spark's {@code xxhash64}. */
  private static final long SEED = 42;

  private long records;
  private long least = Long.MAX_VALUE;
  private long digest;

  /** {@code bit_xor(xxhash64(sequence number))}, an aggregate counted once: an even number of them would cancel out. */
  long digest() {
    return digest;
  }

  void add(InternalRow record) {
    records++;
    least = Math.min(least, record.getLong(OFFSET));
    if (record.isNullAt(SUBSEQUENCE) || record.getInt(SUBSEQUENCE) == 0) {
      UTF8String number = record.getUTF8String(SEQUENCE);
      digest ^= XXH64.hashUnsafeBytes(number.getBaseObject(), number.getBaseOffset(), number.numBytes(), SEED);
    }
  }

  /** Only the rows about the whole of a shard; after their columns the count of its records, the least and the digest. */
  static final class Wholes implements Iterator<InternalRow> {
    private final Iterator<InternalRow> rows;

    /** @param rows of one shard after the other */
    Wholes(Iterator<InternalRow> rows) {
      this.rows = rows;
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public InternalRow next() {
      RecordCount count = new RecordCount();
      InternalRow row = rows.next();
      for (; row.isNullAt(STOP); row = rows.next()) {
        count.add(row);
      }
      return new JoinedRow(row, new GenericInternalRow(new Object[] {count.records, count.least, count.digest}));
    }
  }

  /**
   * What was read of a shard.
   *
   * @param end the number after the last record
   */
  record Read(long end, long digest) implements Serializable {}

  /** All rows of one shard; whoever reads them to the end gets an exception unless the records are the expected ones. */
  static final class Checked implements Iterator<InternalRow> {
    private final Iterator<InternalRow> rows;
    private final Map<Integer, Read> expected;
    private final RecordCount count = new RecordCount();
    private Read read;

    /** @param expected by the number of the shard */
    Checked(Iterator<InternalRow> rows, Map<Integer, Read> expected) {
      this.rows = rows;
      this.expected = expected;
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public InternalRow next() {
      InternalRow row = rows.next();
      read = read == null ? expected.get(row.getInt(PARTITION)) : read;
      if (row.isNullAt(STOP)) {
        if (row.getLong(OFFSET) < read.end) {
          count.add(row);
        }
      } else if (count.digest != read.digest) {
        throw new RecordsDiffer(row.getUTF8String(STREAM) + " " + row.getInt(PARTITION));
      }
      return row;
    }
  }
}
