package kdi.kinesis;

import java.nio.ByteBuffer;
import java.util.Arrays;
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
 * Rows on the disks of the executors, as Spark has them in memory: those of each task as one stream of bytes.
 *
 * <p>Spark's cache of a DataFrame holds them by columns, and tries for each column how it could be compressed: that took
 * a quarter of a drain. Java's serializer holds on to the last hundred objects that it wrote, so the stream is cut into
 * small pieces, whatever the length of a row.
 */
public final class RowsOnDisk {
  private static final int PIECE = 1 << 16;

  private final JavaRDD<byte[]> pieces;
  private final int columns;

  /** @param rows are {@link UnsafeRow}s; the first job that uses them reads them */
  public RowsOnDisk(RDD<InternalRow> rows, int columns) {
    FlatMapFunction<Iterator<InternalRow>, byte[]> cut = Cut::new;
    this.pieces = rows.toJavaRDD().mapPartitions(cut).persist(StorageLevel.DISK_ONLY());
    this.columns = columns;
  }

  /** The same rows; those of a task whose pieces were lost are read again. */
  public RDD<InternalRow> rows() {
    int width = columns;
    FlatMapFunction<Iterator<byte[]>, InternalRow> join = read -> new Joined(read, width);
    return pieces.mapPartitions(join).rdd();
  }

  /** Removes them from the disks. */
  public void forget() {
    pieces.unpersist(false);
  }

  /** The pieces of rows: of each row its length and its bytes. */
  private static final class Cut implements Iterator<byte[]> {
    private final Iterator<InternalRow> rows;
    private byte[] row = {};
    private int written;

    Cut(Iterator<InternalRow> rows) {
      this.rows = rows;
    }

    @Override
    public boolean hasNext() {
      return written < row.length || rows.hasNext();
    }

    @Override
    public byte[] next() {
      byte[] piece = new byte[PIECE];
      int filled = 0;
      while (filled < PIECE && hasNext()) {
        if (written == row.length) {
          row = bytes((UnsafeRow) rows.next());
          written = 0;
        }
        int part = Math.min(PIECE - filled, row.length - written);
        System.arraycopy(row, written, piece, filled, part);
        written += part;
        filled += part;
      }
      return filled == PIECE ? piece : Arrays.copyOf(piece, filled);
    }

    private static byte[] bytes(UnsafeRow row) {
      byte[] bytes = ByteBuffer.allocate(Integer.BYTES + row.getSizeInBytes()).putInt(row.getSizeInBytes()).array();
      row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + Integer.BYTES);
      return bytes;
    }
  }

  /** The rows of pieces. */
  private static final class Joined implements Iterator<InternalRow> {
    private final Iterator<byte[]> pieces;
    private final int columns;
    private byte[] piece = {};
    private int read;

    Joined(Iterator<byte[]> pieces, int columns) {
      this.pieces = pieces;
      this.columns = columns;
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
      byte[] bytes = take(ByteBuffer.wrap(take(Integer.BYTES)).getInt());
      UnsafeRow row = new UnsafeRow(columns);
      row.pointTo(bytes, bytes.length);
      return row;
    }

    private byte[] take(int size) {
      byte[] taken = new byte[size];
      for (int filled = 0; filled < size; ) {
        if (read == piece.length) {
          piece = pieces.next();
          read = 0;
        }
        int part = Math.min(size - filled, piece.length - read);
        System.arraycopy(piece, read, taken, filled, part);
        read += part;
        filled += part;
      }
      return taken;
    }
  }
}
