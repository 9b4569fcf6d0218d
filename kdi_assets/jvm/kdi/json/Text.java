package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/** UTF-8 text of messages. */
public final class Text {
  /** Eight bytes, of which the first is the lowest. */
  private static final VarHandle LONGS =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  private static final long EACH = 0x0101010101010101L;
  private static final long HIGH_BITS = EACH * 0x80;

  private Text() {}

  /** Whether the bytes are UTF-8. Nearly all messages are ASCII, which is checked eight bytes at a time. */
  public static boolean isValid(byte[] bytes) {
    return isAscii(bytes) || UTF8String.fromBytes(bytes).isValid();
  }

  private static boolean isAscii(byte[] bytes) {
    long bits = 0;
    int at = 0;
    for (; at <= bytes.length - Long.BYTES; at += Long.BYTES) {
      bits |= (long) LONGS.get(bytes, at);
    }
    for (; at < bytes.length; at++) {
      bits |= bytes[at];
    }
    return (bits & HIGH_BITS) == 0;
  }

  /**
   * The text of the current token; null if it has an escape of half a surrogate pair, which UTF-8 cannot hold.
   *
   * @param payload the parser's input; plain text refers to it and is not copied
   */
  static UTF8String of(JsonParser parser, byte[] payload) throws IOException {
    int from = (int) parser.currentTokenLocation().getByteOffset() + 1;
    int to = pastPlain(payload, from);
    boolean plain = to < payload.length && payload[to] == '"';
    return plain ? UTF8String.fromBytes(payload, from, to - from) : decoded(parser);
  }

  /** Past the bytes that stand for themselves in a JSON text: ASCII without controls, quotes and backslashes. */
  private static int pastPlain(byte[] payload, int from) {
    int at = from;
    for (; at <= payload.length - Long.BYTES; at += Long.BYTES) {
      long bytes = (long) LONGS.get(payload, at);
      // A subtraction sets the high bit of a byte that is smaller. It can disturb only bytes after such a one.
      long quotes = (bytes ^ EACH * '"') - EACH;
      long backslashes = (bytes ^ EACH * '\\') - EACH;
      long others = (bytes | bytes - EACH * ' ' | quotes | backslashes) & HIGH_BITS;
      if (others != 0) {
        return at + Long.numberOfTrailingZeros(others) / Byte.SIZE;
      }
    }
    while (at < payload.length && payload[at] >= ' ' && payload[at] != '"' && payload[at] != '\\') {
      at++;
    }
    return at;
  }

  private static UTF8String decoded(JsonParser parser) throws IOException {
    char[] characters = parser.getTextCharacters();
    int from = parser.getTextOffset();
    int length = parser.getTextLength();
    byte[] ascii = new byte[length];
    for (int each = 0; each < length; each++) {
      char character = characters[from + each];
      if (character >= 0x80) {
        return encoded(CharBuffer.wrap(characters, from, length));
      }
      ascii[each] = (byte) character;
    }
    return UTF8String.fromBytes(ascii);
  }

  static UTF8String encoded(CharSequence text) {
    try {
      var bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      return UTF8String.fromBytes(bytes.array(), 0, bytes.limit());
    } catch (CharacterCodingException half) {
      return null;
    }
  }
}
