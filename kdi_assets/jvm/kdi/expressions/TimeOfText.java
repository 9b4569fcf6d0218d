package kdi.expressions;

import java.io.Serializable;
import java.time.ZoneOffset;
import kdi.formats.PlainTime;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's cast of a text to a timestamp, in sessions of UTC.
 *
 * <p>{@code 2026-01-31T10:00:00.123Z} and the like are read here; Spark's own code reads every other text.
 */
public final class TimeOfText implements Serializable {
  private final QueryContext context;

  /** @param context the place in the SQL text that Spark's error names; null if there is none */
  TimeOfText(QueryContext context) {
    this.context = context;
  }

  /** The timestamp, in microseconds since 1970; Spark's error for what is none. */
  public static long of(UTF8String text, TimeOfText time) {
    long micros = PlainTime.micros(text);
    return micros != PlainTime.OTHER ? micros : DateTimeUtils.stringToTimestampAnsi(text, ZoneOffset.UTC, time.context);
  }

  /** For plans. */
  @Override
  public String toString() {
    return "of a text";
  }
}
