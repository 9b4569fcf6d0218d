package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.exc.InputCoercionException;
import com.fasterxml.jackson.core.exc.StreamConstraintsException;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.types.variant.VariantSizeLimitException;
import org.apache.spark.unsafe.types.VariantVal;

/** Makes variants, and notes what they would change silently. They hold doubles of numbers with more than 38 digits. */
final class Watched extends JsonParserDelegate {
  /** Of longer numbers nothing is made: the time for it grows with the square of their length. */
  static final int MOST_DIGITS = 1000;

  private static final int DIGITS_OF_A_LONG = 20;
  private boolean changesNumber;

  /** Whether the last value has a text with half a surrogate pair. */
  boolean holdsHalfCharacters;

  Watched(JsonParser parser) {
    super(parser);
  }

  /**
   * The value at the current token.
   *
   * @return null if a variant cannot hold it as it is; then it may not have been read to its end
   */
  VariantVal variant() throws IOException {
    changesNumber = false;
    holdsHalfCharacters = false;
    try {
      Variant value = VariantBuilder.parseJson(this, true);
      return changesNumber || holdsHalfCharacters ? null : new VariantVal(value.getValue(), value.getMetadata());
    } catch (VariantSizeLimitException tooLarge) {
      return null;
    } catch (JsonProcessingException refused) {
      if (changesNumber || holdsHalfCharacters) {
        return null;
      }
      throw refused;
    }
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
    if (currentToken().isNumeric() && getTextLength() > MOST_DIGITS) {
      changesNumber = true;
      throw new StreamConstraintsException("too long");
    }
    String text = super.getText();
    holdsHalfCharacters |= hasHalfCharacters(text);
    return text;
  }

  private static boolean hasHalfCharacters(String text) {
    for (int at = 0; at < text.length(); at++) {
      if (Character.isSurrogate(text.charAt(at))) {
        boolean isPair = at + 1 < text.length() && Character.isSurrogatePair(text.charAt(at), text.charAt(at + 1));
        if (!isPair) {
          return true;
        }
        at++;
      }
    }
    return false;
  }
}
