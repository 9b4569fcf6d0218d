package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.ZoneOffset;
import kdi.formats.PlainTime;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** Fields without inner fields. */
final class Leaves {
  private Leaves() {}

  /** The problems that a value can have. */
  record Problems(Problem outOfRange, Problem wrongType, Problem tooPrecise, Problem invalidUtf8)
      implements java.io.Serializable {}

  abstract static class Leaf extends Field {
    final Problems problems;

    Leaf(String path, Problem missing, Problems problems) {
      super(path, missing);
      this.problems = problems;
    }

    final Object wrongType(JsonParser parser, Pass pass) throws IOException {
      parser.skipChildren();
      return pass.misfit(problems.wrongType);
    }
  }

  /** Text; an integer or a boolean keeps its spelling. */
  static final class Strings extends Leaf {
    Strings(String path, Problem missing, Problems problems) {
      super(path, missing, problems);
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      switch (parser.currentToken()) {
        case VALUE_STRING:
          UTF8String text = Text.of(parser, pass.payload);
          return text == null ? pass.misfit(problems.invalidUtf8) : text;
        case VALUE_NUMBER_INT:
        case VALUE_TRUE:
        case VALUE_FALSE:
          return UTF8String.fromString(parser.getText());
        default:
          return wrongType(parser, pass);
      }
    }
  }

  /** Any value: a string as it is, anything else as its JSON text. */
  static final class Texts extends Leaf {
    Texts(String path, Problem missing, Problems problems) {
      super(path, missing, problems);
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (parser.currentToken() == JsonToken.VALUE_STRING) {
        UTF8String text = Text.of(parser, pass.payload);
        return text == null ? pass.misfit(problems.invalidUtf8) : text;
      }
      int from = (int) parser.currentTokenLocation().getByteOffset();
      parser.skipChildren();
      parser.finishToken();
      int to = (int) parser.currentLocation().getByteOffset();
      return UTF8String.fromBytes(pass.payload, from, to - from);
    }
  }

  static final class Booleans extends Leaf {
    Booleans(String path, Problem missing, Problems problems) {
      super(path, missing, problems);
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      switch (parser.currentToken()) {
        case VALUE_TRUE:
          return true;
        case VALUE_FALSE:
          return false;
        default:
          return wrongType(parser, pass);
      }
    }
  }

  /** Whole numbers of one to eight bytes. */
  static final class Integers extends Leaf {
    private final int bytes;

    Integers(String path, Problem missing, Problems problems, int bytes) {
      super(path, missing, problems);
      this.bytes = bytes;
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (parser.currentToken() != JsonToken.VALUE_NUMBER_INT) {
        return wrongType(parser, pass);
      }
      if (parser.getTextLength() > 20 || parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
        return pass.misfit(problems.outOfRange);
      }
      long number = parser.getLongValue();
      int unused = 64 - 8 * bytes;
      if (number << unused >> unused != number) {
        return pass.misfit(problems.outOfRange);
      }
      switch (bytes) {
        case 1:
          return (byte) number;
        case 2:
          return (short) number;
        case 4:
          return (int) number;
        default:
          return number;
      }
    }
  }

  /** Binary fractions: a fraction is rounded as IEEE says, an integer must be held exactly, and only 0 becomes 0. */
  static final class Floats extends Leaf {
    /** Every integer with so few digits is held exactly: below 2 to the power of 53 and 24. */
    private static final int DIGITS_OF_A_DOUBLE = 15;

    private static final int DIGITS_OF_A_FLOAT = 7;
    private final boolean isDouble;

    Floats(String path, Problem missing, Problems problems, boolean isDouble) {
      super(path, missing, problems);
      this.isDouble = isDouble;
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (!parser.currentToken().isNumeric()) {
        return wrongType(parser, pass);
      }
      Number number = isDouble ? (Number) parser.getDoubleValue() : (Number) parser.getFloatValue();
      return isHeld(number.doubleValue(), parser, isDouble) ? number : pass.misfit(problems.outOfRange);
    }

    /** Whether a number is that of the current token, but for the rounding of a fraction. */
    static boolean isHeld(double number, JsonParser parser, boolean isDouble) throws IOException {
      if (number == 0) {
        return !hasDigit(parser);
      }
      boolean isShort = parser.getTextLength() <= (isDouble ? DIGITS_OF_A_DOUBLE : DIGITS_OF_A_FLOAT);
      if (isShort || parser.currentToken() != JsonToken.VALUE_NUMBER_INT) {
        return !Double.isInfinite(number);
      }
      if (Double.isInfinite(number)) {
        return false;
      }
      // From the text: the parser would make its integer of the rounded number.
      var exact = new BigDecimal(parser.getTextCharacters(), parser.getTextOffset(), parser.getTextLength());
      return exact.compareTo(new BigDecimal(number)) == 0;
    }

    /** Whether the number at the current token has a digit other than 0 before its exponent. */
    private static boolean hasDigit(JsonParser parser) throws IOException {
      char[] text = parser.getTextCharacters();
      int from = parser.getTextOffset();
      for (int each = from; each < from + parser.getTextLength() && (text[each] | ' ') != 'e'; each++) {
        if (text[each] >= '1' && text[each] <= '9') {
          return true;
        }
      }
      return false;
    }
  }

  /** Decimals, from numbers and from text, because money is often sent as text. */
  static final class Decimals extends Leaf {
    /** A table's decimals have far fewer digits, and parsing more takes long. */
    private static final int MOST_DIGITS = 1000;

    private final DecimalType type;

    Decimals(String path, Problem missing, Problems problems, DecimalType type) {
      super(path, missing, problems);
      this.type = type;
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (!parser.currentToken().isNumeric() && parser.currentToken() != JsonToken.VALUE_STRING) {
        return wrongType(parser, pass);
      }
      if (parser.getTextLength() > MOST_DIGITS) {
        return pass.misfit(problems.outOfRange);
      }
      BigDecimal number;
      try {
        number = new BigDecimal(parser.getTextCharacters(), parser.getTextOffset(), parser.getTextLength());
        number = number.stripTrailingZeros();
      } catch (NumberFormatException none) {
        // Of a number: its exponent has more than ten digits.
        return pass.misfit(parser.currentToken().isNumeric() ? problems.outOfRange : problems.wrongType);
      } catch (ArithmeticException exponent) {
        return pass.misfit(problems.outOfRange);
      }
      // Checked before setScale writes out all digits: there may be a billion.
      long digitsBefore = (long) number.precision() - number.scale();
      if (number.signum() != 0 && digitsBefore > type.precision() - type.scale()) {
        return pass.misfit(problems.outOfRange);
      }
      if (number.scale() > type.scale()) {
        return pass.misfit(problems.tooPrecise);
      }
      return Decimal.apply(number.setScale(type.scale()), type.precision(), type.scale());
    }
  }

  /** Base64. */
  static final class Binaries extends Leaf {
    Binaries(String path, Problem missing, Problems problems) {
      super(path, missing, problems);
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (parser.currentToken() != JsonToken.VALUE_STRING) {
        return wrongType(parser, pass);
      }
      try {
        return com.fasterxml.jackson.core.Base64Variants.getDefaultVariant().decode(parser.getText());
      } catch (IllegalArgumentException none) {
        return wrongType(parser, pass);
      }
    }
  }

  /** Dates and timestamps, from text in those forms of ISO 8601 that Spark reads. */
  static final class Times extends Leaf {
    enum Kind {
      DATE,
      TIMESTAMP,
      TIMESTAMP_NTZ
    }

    /** The first and the last microsecond of the years 1 to 9999. */
    private static final long FIRST = -62_135_596_800_000_000L;

    private static final long LAST = 253_402_300_799_999_999L;
    private final Kind kind;

    Times(String path, Problem missing, Problems problems, Kind kind) {
      super(path, missing, problems);
      this.kind = kind;
    }

    @Override
    Object read(JsonParser parser, Pass pass) throws IOException {
      if (parser.currentToken() != JsonToken.VALUE_STRING) {
        return wrongType(parser, pass);
      }
      UTF8String plain = Text.of(parser, pass.payload);
      long found = plain == null ? PlainTime.OTHER : plainly(plain);
      if (found == PlainTime.OTHER) {
        return ofAnyForm(parser.getText(), pass);
      }
      return kind == Kind.DATE ? (Object) (int) found : bounded(found, pass);
    }

    private long plainly(UTF8String text) {
      switch (kind) {
        case DATE:
          return text.numBytes() == PlainTime.DATE ? PlainTime.days(text) : PlainTime.OTHER;
        case TIMESTAMP:
          return PlainTime.micros(text);
        default:
          return PlainTime.isLocal(text) ? PlainTime.micros(text) : PlainTime.OTHER;
      }
    }

    private Object ofAnyForm(String text, Pass pass) {
      TimeForm form = TimeForm.of(text);
      if (form == null || form.hasTime && kind == Kind.DATE || form.hasZone && kind != Kind.TIMESTAMP) {
        return pass.misfit(problems.wrongType);
      }
      UTF8String ascii = UTF8String.fromString(text);
      Option<Object> found;
      switch (kind) {
        case DATE:
          found = DateTimeUtils.stringToDate(ascii);
          break;
        case TIMESTAMP:
          found = DateTimeUtils.stringToTimestamp(ascii, ZoneOffset.UTC);
          break;
        default:
          found = DateTimeUtils.stringToTimestampWithoutTimeZone(ascii);
      }
      if (found.isEmpty()) {
        return pass.misfit(problems.outOfRange);
      }
      if (form.finerThanMicroseconds) {
        return pass.misfit(problems.tooPrecise);
      }
      return kind == Kind.DATE ? found.get() : bounded((long) found.get(), pass);
    }

    /** The moment, if it is in the years that other readers know; an offset may move it out of the text's year. */
    private Object bounded(long micros, Pass pass) {
      return micros < FIRST || micros > LAST ? pass.misfit(problems.outOfRange) : (Object) micros;
    }
  }
}
