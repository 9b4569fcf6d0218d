package kdi.protobuf;

import java.math.BigDecimal;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.Decimal;

/** A message at a place of the record, and what becomes of it there. */
final class Message extends Type {
  enum Kind {
    RECORD,
    ENTRY,
    EMPTY,
    TIMESTAMP,
    DURATION,
    WRAPPER
  }

  private static final long FIRST_SECOND = -62_135_596_800L;
  private static final long LAST_SECOND = 253_402_300_799L;
  private static final long MOST_SECONDS = 315_576_000_000L;
  private static final long MOST_NANOS = 999_999_999;

  final Kind kind;
  final Field[] fields;

  /** As in dead letters: with {@code []} for elements, values and keys; empty for the record. */
  final String path;

  /** The place among all messages of the record. */
  final int rank;

  /** Places of the fields. */
  final int[] inOrderOfNumbers;

  private final Map<Integer, Integer> places = new HashMap<>();

  Message(Kind kind, Field[] fields, String path, int rank) {
    super(Wire.BYTES);
    this.kind = kind;
    this.fields = fields;
    this.path = path;
    this.rank = rank;
    for (int place = 0; place < fields.length; place++) {
      places.put(fields[place].number, place);
    }
    this.inOrderOfNumbers = new TreeMap<>(places).values().stream().mapToInt(Integer::intValue).toArray();
  }

  Partial empty() {
    return new Partial(fields.length);
  }

  @Override
  Object read(Wire wire, Object before) throws Wire.Refused {
    Partial message = before == null ? empty() : (Partial) before;
    int around = wire.enter();
    wire.descend();
    readFields(wire, message);
    wire.rise();
    wire.leave(around);
    return message;
  }

  /** Read fields up to the end. */
  void readFields(Wire wire, Partial into) throws Wire.Refused {
    int guess = 0;
    while (wire.at < wire.end) {
      int tag = wire.tag();
      int number = tag >>> 3;
      int encoding = tag & 7;
      int place = placeOf(number, guess);
      if (place < 0 || !fields[place].takes(encoding)) {
        wire.skip(tag);
        into.unknown(number, wire);
        continue;
      }
      Field field = fields[place];
      if (field.oneof >= 0) {
        forgetOthers(field, into);
      }
      Object value = field.read(wire, into.values[place], encoding);
      if (value == null) {
        into.unknown(number, wire);
      } else {
        into.values[place] = value;
      }
      guess = field.label == Field.Label.ONE ? place + 1 : place;
    }
    if (wire.at != wire.end) {
      throw Wire.Refused.MALFORMED;
    }
  }

  /** The place of a field, or -1; fields usually come in the order of their numbers. */
  private int placeOf(int number, int guess) {
    if (guess < fields.length && fields[guess].number == number) {
      return guess;
    }
    Integer place = places.get(number);
    return place == null ? -1 : place;
  }

  private void forgetOthers(Field field, Partial in) {
    for (int place = 0; place < fields.length; place++) {
      if (fields[place].oneof == field.oneof && fields[place] != field) {
        in.values[place] = null;
      }
    }
  }

  @Override
  Object finished(Object read, Pass pass) throws Wire.Refused {
    Object[] values = ((Partial) read).values;
    for (int place = 0; place < fields.length; place++) {
      values[place] = fields[place].finished(values[place], pass);
    }
    return switch (kind) {
      case RECORD, ENTRY -> new GenericInternalRow(values);
      case EMPTY -> true;
      case WRAPPER -> values[0];
      case TIMESTAMP -> timestamp((long) values[0], (int) values[1], pass);
      case DURATION -> duration((long) values[0], (int) values[1], pass);
    };
  }

  /** Microseconds; smaller parts are cut off, towards the past. */
  private Object timestamp(long seconds, int nanos, Pass pass) {
    if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos > MOST_NANOS) {
      pass.outOfRange(this);
      return null;
    }
    return seconds * 1_000_000 + nanos / 1_000;
  }

  private Object duration(long seconds, int nanos, Pass pass) {
    boolean isTooLong = Math.abs(seconds) > MOST_SECONDS || Math.abs((long) nanos) > MOST_NANOS;
    if (isTooLong || seconds == Long.MIN_VALUE || Long.signum(seconds) * Integer.signum(nanos) < 0) {
      pass.outOfRange(this);
      return null;
    }
    BigDecimal exact = BigDecimal.valueOf(seconds).add(BigDecimal.valueOf(nanos, 9)).setScale(9);
    return Decimal.apply(exact, 21, 9);
  }
}
