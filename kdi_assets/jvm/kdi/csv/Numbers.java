package kdi.csv;

import java.math.BigDecimal;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Whether texts are numbers that their columns hold, by the rules of JSON's numbers.
 *
 * <p>Spark's casts round: a decimal to its scale, an integer to what a double holds, a tiny number to 0.
 */
public final class Numbers implements java.io.Serializable {
  /** A table's decimals have far fewer digits, and parsing more takes long. */
  private static final int MOST_DIGITS = 1000;

  /** Of a decimal; Spark would write out as many zeros. */
  private static final int MOST_DIGITS_OF_EXPONENT = 4;

  /** Every number of so few digits is held, but for the rounding of a fraction. */
  private static final int SHORT_DOUBLE = 15;

  private static final int SHORT_FLOAT = 7;

  private enum Verdict {
    FITS,
    OUT_OF_RANGE,
    TOO_PRECISE,
    WRONG_TYPE
  }

  private final DataType[] types;

  /** Of the columns whose texts are given to {@code firstMisfit}: decimals, doubles and floats. */
  public Numbers(StructType columns) {
    types = new DataType[columns.length()];
    for (int each = 0; each < types.length; each++) {
      types[each] = columns.apply(each).dataType();
    }
  }

  /** 0 if every text fits or is null; else 4 times the number of the first that does not, and 1 to 3 for the reason. */
  public static int firstMisfit(ArrayData texts, Numbers columns) {
    for (int each = 0; each < columns.types.length; each++) {
      if (!texts.isNullAt(each)) {
        Verdict found = judged(texts.getUTF8String(each), columns.types[each]);
        if (found != Verdict.FITS) {
          return 4 * each + found.ordinal();
        }
      }
    }
    return 0;
  }

  private static Verdict judged(UTF8String text, DataType type) {
    Form form = Form.of(text.getBytes());
    if (form == null) {
      return Verdict.WRONG_TYPE;
    }
    return type instanceof DecimalType decimal ? decimal(form, decimal) : fraction(form, type instanceof DoubleType);
  }

  private static Verdict decimal(Form form, DecimalType type) {
    if (form.length() > MOST_DIGITS || form.exponentDigits > MOST_DIGITS_OF_EXPONENT) {
      return Verdict.OUT_OF_RANGE;
    }
    BigDecimal written = new BigDecimal(form.text());
    if (written.precision() - written.scale() > DecimalType.MAX_PRECISION()) {
      return Verdict.OUT_OF_RANGE; // also a zero: Spark's cast makes a null of it
    }
    BigDecimal number = written.stripTrailingZeros();
    if (number.signum() != 0 && number.precision() - number.scale() > type.precision() - type.scale()) {
      return Verdict.OUT_OF_RANGE;
    }
    return number.scale() > type.scale() ? Verdict.TOO_PRECISE : Verdict.FITS;
  }

  private static Verdict fraction(Form form, boolean isDouble) {
    if (form.exponentDigits == 0 && form.length() <= (isDouble ? SHORT_DOUBLE : SHORT_FLOAT)) {
      return Verdict.FITS;
    }
    double held = isDouble ? Double.parseDouble(form.text()) : Float.parseFloat(form.text());
    boolean fits = held == 0 ? form.isZero : !Double.isInfinite(held);
    if (fits && form.isInteger && held != 0) {
      fits = new BigDecimal(form.text()).compareTo(new BigDecimal(held)) == 0;
    }
    return fits ? Verdict.FITS : Verdict.OUT_OF_RANGE;
  }

  /** The spelling of a number in ASCII, without spaces around it. */
  private static final class Form {
    private final byte[] bytes;
    private int from;
    private int to;
    private boolean isInteger;
    private boolean isZero = true;
    private int exponentDigits;

    private Form(byte[] bytes) {
      this.bytes = bytes;
      to = bytes.length;
    }

    /** Null if the text is no number. */
    static Form of(byte[] bytes) {
      Form form = new Form(bytes);
      return form.isNumber() ? form : null;
    }

    int length() {
      return to - from;
    }

    @SuppressWarnings("deprecation") // all are ASCII
    String text() {
      return new String(bytes, 0, from, to - from);
    }

    private boolean isNumber() {
      while (from < to && isSpace(bytes[from])) {
        from++;
      }
      while (to > from && isSpace(bytes[to - 1])) {
        to--;
      }
      int at = pastSign(from);
      int point = pastDigits(at);
      int digits = point - at;
      isZero = areZeros(at, point);
      at = point;
      if (at < to && bytes[at] == '.') {
        int end = pastDigits(at + 1);
        digits += end - at - 1;
        isZero &= areZeros(at + 1, end);
        at = end;
      }
      isInteger = at == point && at == to;
      return digits > 0 && (at == to || (bytes[at] | ' ') == 'e' && isExponent(at + 1));
    }

    private boolean isExponent(int start) {
      int at = pastSign(start);
      int end = pastDigits(at);
      while (at < end - 1 && bytes[at] == '0') {
        at++;
      }
      exponentDigits = end - at;
      return end == to && exponentDigits > 0;
    }

    private int pastSign(int at) {
      return at < to && (bytes[at] == '+' || bytes[at] == '-') ? at + 1 : at;
    }

    private int pastDigits(int start) {
      int at = start;
      while (at < to && bytes[at] >= '0' && bytes[at] <= '9') {
        at++;
      }
      return at;
    }

    private boolean areZeros(int start, int end) {
      for (int at = start; at < end; at++) {
        if (bytes[at] != '0') {
          return false;
        }
      }
      return true;
    }

    private static boolean isSpace(byte character) {
      return character == ' ' || character >= '\t' && character <= '\r';
    }
  }
}
