package kdi.kinesis;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.unsafe.Platform;

/**
 * Rows of {@link ShardRecords} on the disks of the executors, as Spark has them in memory: those of each task as one
 * stream of bytes.
 *
 * <p>Spark's cache of a DataFrame holds them by columns, and tries for each column how it could be compressed: that took
 * a quarter of a drain. Java's serializer holds on to the last hundred objects that it wrote, so the stream is cut into
 * small pieces, whatever the length of a row. The lengths of pieces and rows are multiples of eight, so no piece ends
 * inside the length of a row.
 */
public final class RowsOnDisk {
  private static final int PIECE = 1 << 16;
  private static final int BEGIN = Platform.BYTE_ARRAY_OFFSET;

  private final JavaRDD<byte[]> pieces;
  private final int columns;

  /** @param rows are {@link UnsafeRow}s; the first job that uses them reads them */
  public RowsOnDisk(RDD<InternalRow> rows, int columns) {
    FlatMapFunction<Iterator<InternalRow>, byte[]> cut = Cut::new;
    this.pieces = rows.toJavaRDD().mapPartitions(cut).persist(StorageLevel.DISK_ONLY());
    this.columns = columns;
  }

  /** The rows of {@link RecordCount.Wholes}: of each shard, what the reader says, and what is on disk. */
  public RDD<InternalRow> counted() {
    int width = columns;
    FlatMapFunction<Iterator<byte[]>, InternalRow> count = read -> new RecordCount.Wholes(new Joined(read, width));
    return pieces.mapPartitions(count).rdd();
  }

  /**
   * The same rows; those of a task whose pieces were lost are read again, and must be the same.
   *
   * @param shards numbers of all shards, with blanks between
   * @param ends of each, the number after its last record: after it, there may be more when it is read again
   * @param digests of each, as {@link RecordCount} has it
   */
  public RDD<InternalRow> rows(String shards, String ends, String digests) {
    int width = columns;
    long[] numbers = Spans.numbers(shards);
    long[] after = Spans.numbers(ends);
    long[] of = Spans.numbers(digests);
    HashMap<Integer, RecordCount.Read> expected = new HashMap<>();
    for (int each = 0; each < numbers.length; each++) {
      expected.put((int) numbers[each], new RecordCount.Read(after[each], of[each]));
    }
    FlatMapFunction<Iterator<byte[]>, InternalRow> join =
        read -> new RecordCount.Checked(new Joined(read, width), expected);
    return pieces.mapPartitions(join).rdd();
  }

  /** Removes them from the disks. */
  public void forget() {
    pieces.unpersist(false);
  }

  /** The pieces of rows: of each row its length and its bytes. */
  private static final class Cut implements Iterator<byte[]> {
    private final Iterator<InternalRow> rows;
    private UnsafeRow row;
    private int left;

    Cut(Iterator<InternalRow> rows) {
      this.rows = rows;
    }

    @Override
    public boolean hasNext() {
      return left > 0 || rows.hasNext();
    }

    @Override
    public byte[] next() {
      byte[] piece = new byte[PIECE];
      int filled = 0;
      while (filled < PIECE && hasNext()) {
        if (left == 0) {
          row = (UnsafeRow) rows.next();
          left = row.getSizeInBytes();
          Platform.putLong(piece, BEGIN + filled, left);
          filled += Long.BYTES;
        }
        int part = Math.min(PIECE - filled, left);
        long from = row.getBaseOffset() + row.getSizeInBytes() - left;
        Platform.copyMemory(row.getBaseObject(), from, piece, BEGIN + filled, part);
        left -= part;
        filled += part;
      }
      return filled == PIECE ? piece : Arrays.copyOf(piece, filled);
    }
  }

  /** The rows of pieces; each is used until the next one comes. */
  private static final class Joined implements Iterator<InternalRow> {
    private final Iterator<byte[]> pieces;
    private final UnsafeRow row;
    private byte[] piece = {};
    private int read;

    Joined(Iterator<byte[]> pieces, int columns) {
      this.pieces = pieces;
      this.row = new UnsafeRow(columns);
    }

    @Override
    public boolean hasNext() {
      return read < piece.length || pieces.hasNext();
    }

    @Override
    public InternalRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      int size = (int) Platform.getLong(piece(), BEGIN + read);
      read += Long.BYTES;
      if (read + size <= piece.length) {
        row.pointTo(piece, BEGIN + read, size);
        read += size;
      } else {
        row.pointTo(take(size), size);
      }
      return row;
    }

    private byte[] take(int size) {
      byte[] taken = new byte[size];
      for (int filled = 0; filled < size; ) {
        int part = Math.min(size - filled, piece().length - read);
        System.arraycopy(piece, read, taken, filled, part);
        read += part;
        filled += part;
      }
      return taken;
    }

    private byte[] piece() {
      if (read == piece.length) {
        piece = pieces.next();
        read = 0;
      }
      return piece;
    }
  }
}
