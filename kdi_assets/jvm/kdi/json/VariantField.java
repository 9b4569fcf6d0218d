package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.exc.InputCoercionException;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.nio.charset.CharsetEncoder;
import java.nio.charset.StandardCharsets;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.types.variant.VariantSizeLimitException;
import org.apache.spark.unsafe.types.VariantVal;

/** Any value, as a variant; of a name that is repeated in an object, the last value counts. */
final class VariantField extends Leaves.Leaf {
  VariantField(String path, Problem missing, Leaves.Problems problems) {
    super(path, missing, problems);
  }

  @Override
  Object read(JsonParser parser, Pass pass) throws IOException {
    int from = (int) parser.currentTokenLocation().getByteOffset();
    parser.skipChildren();
    parser.finishToken();
    int to = (int) parser.currentLocation().getByteOffset();
    // From its bytes, so that the message is read to the end of the value whatever the builder refuses.
    try (Watched watched = new Watched(JsonDecoder.parser(pass.payload, from, to))) {
      watched.nextToken();
      Variant value = variant(watched);
      if (watched.holdsHalfCharacters) {
        return pass.misfit(problems.invalidUtf8());
      }
      if (value == null || watched.changesNumber) {
        return pass.misfit(problems.outOfRange());
      }
      return new VariantVal(value.getValue(), value.getMetadata());
    }
  }

  /** The variant; null if it is too large, or holds half a character. */
  private static Variant variant(Watched watched) throws IOException {
    try {
      return VariantBuilder.parseJson(watched, true);
    } catch (VariantSizeLimitException tooLarge) {
      return null;
    } catch (JsonProcessingException refused) {
      if (watched.holdsHalfCharacters) {
        return null;
      }
      throw refused;
    }
  }

  /** Notes what the builder would change silently. It makes doubles of numbers with more than 38 digits. */
  private static final class Watched extends JsonParserDelegate {
    private static final int DIGITS_OF_A_LONG = 20;
    private final CharsetEncoder utf8 = StandardCharsets.UTF_8.newEncoder();
    boolean changesNumber;
    boolean holdsHalfCharacters;

    Watched(JsonParser parser) {
      super(parser);
    }

    @Override
    public long getLongValue() throws IOException {
      if (getTextLength() > DIGITS_OF_A_LONG) { // otherwise a number is made of all digits first
        throw new InputCoercionException(this, "no long", currentToken(), long.class);
      }
      return super.getLongValue();
    }

    @Override
    public double getDoubleValue() throws IOException {
      double number = super.getDoubleValue();
      changesNumber |= !Leaves.Floats.isHeld(number, delegate, true);
      return number;
    }

    @Override
    public String getText() throws IOException {
      String text = super.getText();
      holdsHalfCharacters |= !utf8.canEncode(text);
      return text;
    }
  }
}
