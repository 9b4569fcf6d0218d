package kdi.expressions;

import java.io.Serializable;
import java.time.LocalDate;
import java.time.Month;
import java.time.Year;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's cast of a text to a date, or of its first ten characters.
 *
 * <p>{@code 2026-01-31}, alone or before a time, is read here; Spark's own code reads every other text.
 */
public final class DateOfText implements Serializable {
  /** Characters of a plain date. */
  static final int LENGTH = 10;

  private final boolean isOfBeginning;
  private final QueryContext context;

  /**
   * @param isOfBeginning whether the date is that of the first ten characters
   * @param context the place in the SQL text that Spark's error names; null if there is none
   */
  DateOfText(boolean isOfBeginning, QueryContext context) {
    this.isOfBeginning = isOfBeginning;
    this.context = context;
  }

  /** The date, in days since 1970; Spark's error for what is no date. */
  public static int of(UTF8String text, DateOfText date) {
    if (text.numBytes() >= LENGTH && (date.isOfBeginning || endsDate(text))) {
      int year = number(text, 0, 4);
      int month = number(text, 5, 7);
      int day = number(text, 8, LENGTH);
      boolean isPlain = year >= 0 && text.getByte(4) == '-' && text.getByte(7) == '-' && month >= 1 && month <= 12;
      if (isPlain && day >= 1 && day <= Month.of(month).length(Year.isLeap(year))) {
        return (int) LocalDate.of(year, month, day).toEpochDay();
      }
    }
    return DateTimeUtils.stringToDateAnsi(date.isOfBeginning ? text.substringSQL(1, LENGTH) : text, date.context);
  }

  /** For plans. */
  @Override
  public String toString() {
    return isOfBeginning ? "of the first ten characters" : "of a text";
  }

  /** Whether a date of ten characters would end there: Spark does not look at what follows. */
  private static boolean endsDate(UTF8String text) {
    return text.numBytes() == LENGTH || text.getByte(LENGTH) == 'T' || text.getByte(LENGTH) == ' ';
  }

  /** The number of these digits; -1 if they are none. */
  private static int number(UTF8String text, int from, int to) {
    int number = 0;
    for (int place = from; place < to; place++) {
      int digit = text.getByte(place) - '0';
      if (digit < 0 || digit > 9) {
        return -1;
      }
      number = 10 * number + digit;
    }
    return number;
  }
}
