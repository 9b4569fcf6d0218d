package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/** UTF-8 text of messages. */
public final class Text {
  private Text() {}

  /** Whether the bytes are UTF-8. Nearly all messages are ASCII, which is checked eight bytes at a time. */
  public static boolean isValid(byte[] bytes) {
    return isAscii(ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder())) || UTF8String.fromBytes(bytes).isValid();
  }

  private static boolean isAscii(ByteBuffer bytes) {
    long bits = 0;
    while (bytes.remaining() >= Long.BYTES) {
      bits |= bytes.getLong();
    }
    while (bytes.hasRemaining()) {
      bits |= bytes.get();
    }
    return (bits & 0x8080808080808080L) == 0;
  }

  /**
   * The text of the current token; null if it has an escape of half a surrogate pair, which UTF-8 cannot hold.
   *
   * @param payload the parser's input; plain text refers to it and is not copied
   */
  static UTF8String of(JsonParser parser, byte[] payload) throws IOException {
    int from = (int) parser.currentTokenLocation().getByteOffset() + 1;
    int to = from;
    while (to < payload.length && payload[to] >= ' ' && payload[to] != '"' && payload[to] != '\\') {
      to++;
    }
    boolean plain = to < payload.length && payload[to] == '"';
    return plain ? UTF8String.fromBytes(payload, from, to - from) : decoded(parser);
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
