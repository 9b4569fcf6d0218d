package kdi.formats;

import com.github.luben.zstd.Zstd;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import org.apache.commons.compress.compressors.gzip.GzipCompressorInputStream;

/** Decompresses the values of messages, up to a limit. */
public final class Compression {
  /** A zstd frame without its size is assumed to hold at most so many times the bytes of the value, in this order. */
  private static final long[] ASSUMED_RATIOS = {32, 4096};

  private Compression() {}

  /** The bytes of all gzip members; null if the value is no gzip or holds more than {@code mostBytes}. */
  public static byte[] ungzip(byte[] value, int mostBytes) {
    if (!startsWith(value, 0x1F, 0x8B)) {
      return null;
    }
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
   * frames have it, and for others, and for several frames, sizes are tried.
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
      for (int tried = 0; bytes == null && tried < (size < 0 ? ASSUMED_RATIOS.length : 1); tried++) {
        bytes = decompressed(value, Math.min(mostBytes, 4096 + ASSUMED_RATIOS[tried] * value.length));
      }
      return bytes;
    } catch (RuntimeException cutOff) {
      return null;
    }
  }

  private static byte[] decompressed(byte[] value, long mostBytes) {
    try {
      return Zstd.decompress(value, (int) mostBytes);
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
