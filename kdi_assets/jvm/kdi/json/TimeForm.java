package kdi.json;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The form of a date or time, e.g. {@code 2024-02-28T10:00:00.123+02:00}; parts at the end may be missing. */
final class TimeForm {
  private static final Pattern FORM =
      Pattern.compile(
          "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
              + "(?:(?<time>[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.](?<fraction>[0-9]+))?)?)"
              + "(?<zone>Z|[+-][0-9]{2}(?::[0-9]{2})?)?)?");

  final boolean hasTime;
  final boolean hasZone;
  final boolean finerThanMicroseconds;

  private TimeForm(Matcher matched) {
    hasTime = matched.group("time") != null;
    hasZone = matched.group("zone") != null;
    String fraction = matched.group("fraction");
    finerThanMicroseconds = fraction != null && fraction.length() > 6 && !fraction.substring(6).matches("0*");
  }

  /** The form of the text; null if it is no date or time. */
  static TimeForm of(String text) {
    Matcher matched = FORM.matcher(text);
    return matched.matches() ? new TimeForm(matched) : null;
  }
}
