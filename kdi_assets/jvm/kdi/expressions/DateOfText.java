package kdi.expressions;

import java.io.Serializable;
import kdi.formats.PlainTime;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's cast of a text to a date, or of its first ten characters.
 *
 * <p>{@code 2026-01-31}, alone or before a time, is read here; Spark's own code reads every other text.
 */
public final class DateOfText implements Serializable {
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
    long days = date.isOfBeginning || endsDate(text) ? PlainTime.days(text) : PlainTime.OTHER;
    if (days != PlainTime.OTHER) {
      return (int) days;
    }
    return DateTimeUtils.stringToDateAnsi(date.isOfBeginning ? text.substringSQL(1, PlainTime.DATE) : text, date.context);
  }

  /** For plans. */
  @Override
  public String toString() {
    return isOfBeginning ? "of the first ten characters" : "of a text";
  }

  /** Whether a date of ten characters would end there: Spark does not look at what follows. */
  private static boolean endsDate(UTF8String text) {
    return text.numBytes() <= PlainTime.DATE || " T".indexOf(text.getByte(PlainTime.DATE)) >= 0;
  }
}
