package kdi.protobuf;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** A scalar, by Protobuf's number of its type. */
final class Scalar extends Type {
  private static final int STRING = 9;

  /** Not a type of Protobuf: a string of its second syntax, which is checked only if no later one replaces it. */
  static final int STRING_CHECKED_LATE = -9;

  private static final int DIGITS = 20;

  private final int type;

  Scalar(int type) {
    super(
        switch (type) {
          case 1, 6, 16 -> Wire.FIXED64;
          case 2, 7, 15 -> Wire.FIXED32;
          case STRING, STRING_CHECKED_LATE, 12 -> Wire.BYTES;
          default -> Wire.VARINT;
        });
    this.type = type;
    this.absent =
        switch (type) {
          case STRING, STRING_CHECKED_LATE -> UTF8String.EMPTY_UTF8;
          case 12 -> new byte[0];
          default -> number(0);
        };
  }

  boolean isText() {
    return type == STRING || type == STRING_CHECKED_LATE;
  }

  @Override
  Object read(Wire wire, Object before) throws Wire.Refused {
    return switch (encoding) {
      case Wire.VARINT -> number(wire.varint());
      case Wire.FIXED64 -> number(wire.fixed64());
      case Wire.FIXED32 -> number(wire.fixed32());
      default -> isText() ? wire.text(type == STRING) : wire.bytes();
    };
  }

  @Override
  Object finished(Object read, Pass pass) {
    pass.hasInvalidText |= type == STRING_CHECKED_LATE && !((UTF8String) read).isValid();
    return read;
  }

  private Object number(long bits) {
    return switch (type) {
      case 1 -> Double.longBitsToDouble(bits);
      case 2 -> Float.intBitsToFloat((int) bits);
      case 3, 16 -> bits;
      case 4, 6 -> unsigned(bits);
      case 5, 15 -> (int) bits;
      case 7, 13 -> Integer.toUnsignedLong((int) bits);
      case 8 -> bits != 0;
      case 17 -> (int) bits >>> 1 ^ -((int) bits & 1);
      case 18 -> bits >>> 1 ^ -(bits & 1);
      default -> throw new IllegalArgumentException("no scalar has type " + type);
    };
  }

  private static Decimal unsigned(long bits) {
    if (bits >= 0) {
      return Decimal.apply(bits, DIGITS, 0);
    }
    BigInteger number = new BigInteger(Long.toUnsignedString(bits));
    return Decimal.apply(new BigDecimal(number), DIGITS, 0);
  }
}
