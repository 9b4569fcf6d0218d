package kdi.formats;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdDecompressCtx;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;
import org.apache.commons.compress.compressors.gzip.GzipCompressorInputStream;

/** Decompresses the values of messages, up to a limit. */
public final class Compression {
  /** A zstd frame without its size is assumed to hold at most so many times the bytes of the value, in this order. */
  private static final long[] ASSUMED_RATIOS = {32, 4096};

  /** Bytes that deflate makes of one at most. */
  private static final long MOST_INFLATED = 1032;

  private static final int GZIP_HEADER = 10;
  private static final int GZIP_TRAILER = 8;

  // One for each thread: to make one costs more than a message, because it takes memory outside of the heap.
  private static final ThreadLocal<Inflater> INFLATER = ThreadLocal.withInitial(() -> new Inflater(true));
  private static final ThreadLocal<OfThread> ZSTD = ThreadLocal.withInitial(OfThread::new);
  private static final Cleaner CLEANER = Cleaner.create();

  private Compression() {}

  /** Spark ends its threads, and zstd's memory does not go with them by itself, as that of an inflater does. */
  private static final class OfThread {
    final ZstdDecompressCtx zstd = new ZstdDecompressCtx();

    OfThread() {
      CLEANER.register(this, zstd::close);
    }
  }

  /** The bytes of all gzip members; null if the value is no gzip or holds more than {@code mostBytes}. */
  public static byte[] ungzip(byte[] value, int mostBytes) {
    if (!startsWith(value, 0x1F, 0x8B)) {
      return null;
    }
    byte[] plain = ofPlainMember(value, mostBytes);
    return plain == null ? ofMembers(value, mostBytes) : plain;
  }

  /** The bytes of one member without optional header fields, as most serializers write it; null for any other value. */
  private static byte[] ofPlainMember(byte[] value, int mostBytes) {
    int trailer = value.length - GZIP_TRAILER;
    if (trailer < GZIP_HEADER || value[2] != 8 || value[3] != 0) {
      return null;
    }
    ByteBuffer numbers = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
    int size = numbers.getInt(trailer + Integer.BYTES);
    if (size < 0 || size > mostBytes || size > MOST_INFLATED * value.length) {
      return null;
    }
    byte[] bytes = new byte[size];
    Inflater inflater = INFLATER.get();
    inflater.reset();
    inflater.setInput(value, GZIP_HEADER, trailer - GZIP_HEADER);
    try {
      // The end may need one more call, which must give no byte.
      boolean whole = inflater.inflate(bytes) == size && inflater.inflate(new byte[1]) == 0 && inflater.finished();
      return whole && inflater.getRemaining() == 0 && numbers.getInt(trailer) == checksum(bytes) ? bytes : null;
    } catch (DataFormatException broken) {
      return null;
    }
  }

  private static int checksum(byte[] bytes) {
    CRC32 checksum = new CRC32();
    checksum.update(bytes);
    return (int) checksum.getValue();
  }

  private static byte[] ofMembers(byte[] value, int mostBytes) {
    // All members: other readers take what follows the first one for padding and drop it.
    try (InputStream reader = new GzipCompressorInputStream(new ByteArrayInputStream(value), true)) {
      byte[] bytes = reader.readNBytes(mostBytes + 1);
      return bytes.length <= mostBytes ? bytes : null;
    } catch (IOException | RuntimeException broken) {
      return null;
    }
  }

  /**
   * The bytes of all zstd frames; null if the value is no zstd or holds more than {@code mostBytes}.
   *
   * <p>In one call and not as a stream, which would allocate a window for every message. The call needs the size; most
   * frames have it, and for others sizes are tried.
   */
  public static byte[] unzstd(byte[] value, int mostBytes) {
    if (!startsWith(value, 0x28, 0xB5, 0x2F, 0xFD)) {
      return null;
    }
    try {
      long size = Zstd.getFrameContentSize(value);
      if (size > mostBytes) {
        return null;
      }
      byte[] bytes = size < 0 ? null : decompressed(value, size);
      if (bytes == null && size >= 0) { // several frames, or none that is whole
        size = contentSize(value);
        bytes = size < 0 || size > mostBytes ? null : decompressed(value, size);
      }
      for (int tried = 0; bytes == null && size < 0 && tried < ASSUMED_RATIOS.length; tried++) {
        bytes = decompressed(value, Math.min(mostBytes, 4096 + ASSUMED_RATIOS[tried] * value.length));
      }
      return bytes;
    } catch (RuntimeException cutOff) {
      return null;
    }
  }

  /** The bytes of all frames together; negative if one of them does not have its size. Throws if one is cut off. */
  private static long contentSize(byte[] value) {
    long sum = 0;
    for (long at = 0; at < value.length; ) {
      int rest = value.length - (int) at;
      long size = Zstd.getFrameContentSize(value, (int) at, rest);
      long compressed = Zstd.findFrameCompressedSize(value, (int) at, rest);
      if (Zstd.isError(compressed)) {
        throw new IllegalArgumentException(Zstd.getErrorName(compressed));
      }
      if (size < 0) {
        return size;
      }
      sum += size;
      at += compressed;
    }
    return sum;
  }

  private static byte[] decompressed(byte[] value, long mostBytes) {
    try {
      return ZSTD.get().zstd.decompress(value, (int) mostBytes);
    } catch (RuntimeException broken) {
      return null;
    }
  }

  private static boolean startsWith(byte[] value, int... magic) {
    for (int at = 0; at < magic.length; at++) {
      if (at >= value.length || value[at] != (byte) magic[at]) {
        return false;
      }
    }
    return true;
  }
}
