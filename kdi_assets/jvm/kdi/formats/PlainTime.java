package kdi.formats;

import java.time.LocalDate;
import java.time.Month;
import java.time.Year;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Dates and times as most messages write them: {@code 2026-01-31} and {@code 2026-01-31T10:00:00.123Z}, read digit by
 * digit. Whoever calls it reads every other text in another way.
 */
public final class PlainTime {
  /** For a text of another form, or a day or time that does not exist. */
  public static final long OTHER = Long.MIN_VALUE;

  /** Characters of a date. */
  public static final int DATE = 10;

  private static final int TIME = 19;
  private static final int MOST_DIGITS = 6;

  /** Below the largest offset of a zone, 18 hours. */
  private static final int MOST_HOURS = 17;

  private PlainTime() {}

  /** Days from 1970 to the date of the first ten characters. */
  public static long days(UTF8String text) {
    if (text.numBytes() < DATE || text.getByte(4) != '-' || text.getByte(7) != '-') {
      return OTHER;
    }
    int year = number(text, 0, 4);
    int month = number(text, 5, 7);
    int day = number(text, 8, DATE);
    boolean isMonth = year >= 1 && month >= 1 && month <= 12;
    boolean exists = isMonth && day >= 1 && day <= Month.of(month).length(Year.isLeap(year));
    return exists ? LocalDate.of(year, month, day).toEpochDay() : OTHER;
  }

  /** Microseconds from 1970 to the date and time, of UTC unless the text ends with an offset. */
  public static long micros(UTF8String text) {
    int zone = endOfTime(text);
    if (zone < 0) {
      return OTHER;
    }
    long days = days(text);
    int hour = number(text, 11, 13);
    int minute = number(text, 14, 16);
    int second = number(text, 17, TIME);
    long offset = offset(text, zone);
    boolean exists = hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second < 60;
    if (days == OTHER || offset == OTHER || !exists) {
      return OTHER;
    }
    long micros = 0;
    if (zone > TIME) {
      micros = number(text, TIME + 1, zone);
      for (int digits = zone - TIME - 1; digits < MOST_DIGITS; digits++) {
        micros *= 10;
      }
    }
    return ((days * 24 + hour) * 60 + minute - offset) * 60_000_000 + second * 1_000_000L + micros;
  }

  /** Whether a text that {@link #micros} reads names no offset. */
  public static boolean isLocal(UTF8String text) {
    return endOfTime(text) == text.numBytes();
  }

  /** The place behind the seconds and their fraction; negative if there is none of this form. */
  private static int endOfTime(UTF8String text) {
    if (text.numBytes() < TIME || text.getByte(13) != ':' || text.getByte(16) != ':'
        || text.getByte(DATE) != 'T' && text.getByte(DATE) != ' ') {
      return -1;
    }
    if (text.numBytes() == TIME || text.getByte(TIME) != '.') {
      return TIME;
    }
    int end = TIME + 1;
    while (end < text.numBytes() && text.getByte(end) >= '0' && text.getByte(end) <= '9') {
      end++;
    }
    int digits = end - TIME - 1;
    return digits >= 1 && digits <= MOST_DIGITS ? end : -1;
  }

  /** Minutes of the offset from UTC: of nothing, {@code Z}, and {@code +02:00}. */
  private static long offset(UTF8String text, int from) {
    int length = text.numBytes() - from;
    if (length == 0 || length == 1 && text.getByte(from) == 'Z') {
      return 0;
    }
    if (length != 6 || text.getByte(from + 3) != ':' || text.getByte(from) != '+' && text.getByte(from) != '-') {
      return OTHER;
    }
    int hours = number(text, from + 1, from + 3);
    int minutes = number(text, from + 4, from + 6);
    if (hours < 0 || hours > MOST_HOURS || minutes < 0 || minutes >= 60) {
      return OTHER;
    }
    return (text.getByte(from) == '+' ? 1 : -1) * (hours * 60L + minutes);
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
