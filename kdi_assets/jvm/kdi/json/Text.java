package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/** Text of a message, as UTF-8. */
final class Text {
  private Text() {}

  /** The text of the current token; null if an escape in it names half a character, which UTF-8 cannot hold. */
  static UTF8String of(JsonParser parser) throws IOException {
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
