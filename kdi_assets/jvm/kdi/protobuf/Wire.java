package kdi.protobuf;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** The bytes of a message, and where it is read; refuses what Protobuf's own parser refuses. */
final class Wire {
  static final int VARINT = 0;
  static final int FIXED64 = 1;
  static final int BYTES = 2;
  static final int FIXED32 = 5;
  private static final int START_GROUP = 3;
  private static final int END_GROUP = 4;
  private static final int MOST_NESTED = 100;

  /** The bytes are not a message, or not one that could become a record; {@code Mistakes} says why. */
  static final class Refused extends Exception {
    static final Refused MALFORMED = new Refused();
    static final Refused INVALID_UTF8 = new Refused();
    static final Refused MISSING_FIELD = new Refused();

    private Refused() {
      super(null, null, false, false);
    }
  }

  /** Whether a text that must be UTF-8 is refused, and a map has each key once; otherwise it is a list of entries. */
  final boolean checks;

  /** Whether a message had fields that its type lacks; it may have been replaced since. */
  boolean anyUnknown;

  int at;

  /** The end of the innermost message. */
  int end;

  private final byte[] bytes;
  private final ByteBuffer numbers;
  private int nested;

  /**
   * @param from where the message begins
   */
  Wire(byte[] bytes, int from, boolean checks) {
    this.bytes = bytes;
    this.at = from;
    this.numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    this.checks = checks;
    this.end = bytes.length;
  }

  /** Number of a field times eight, and the type of its encoding. */
  int tag() throws Refused {
    long tag = varint(5);
    if (tag > 0xFFFFFFFFL || tag >>> 3 == 0) {
      throw Refused.MALFORMED;
    }
    return (int) tag;
  }

  long varint() throws Refused {
    return varint(10);
  }

  private long varint(int mostBytes) throws Refused {
    long number = 0;
    for (int each = 0; each < mostBytes && at < bytes.length; each++) {
      byte next = bytes[at++];
      number |= (long) (next & 0x7F) << 7 * each;
      if (next >= 0) {
        return number;
      }
    }
    throw Refused.MALFORMED;
  }

  long fixed64() throws Refused {
    return numbers.getLong(passed(Long.BYTES));
  }

  int fixed32() throws Refused {
    return numbers.getInt(passed(Integer.BYTES));
  }

  /**
   * A text.
   *
   * @param mustBeUtf8 whether the message is refused if it is not
   */
  UTF8String text(boolean mustBeUtf8) throws Refused {
    int length = length();
    int from = passed(length);
    UTF8String text = UTF8String.fromBytes(bytes, from, length);
    if (mustBeUtf8 && checks && !isAscii(from, at) && !text.isValid()) {
      throw Refused.INVALID_UTF8;
    }
    return text;
  }

  byte[] bytes() throws Refused {
    int from = passed(length());
    return Arrays.copyOfRange(bytes, from, at);
  }

  /** Begin a message with its length, or a packed list; returns the end of what is around it, for {@code leave}. */
  int enter() throws Refused {
    int length = length();
    if (length > end - at) {
      throw Refused.MALFORMED;
    }
    int around = end;
    end = at + length;
    return around;
  }

  void leave(int around) throws Refused {
    if (at != end) {
      throw Refused.MALFORMED;
    }
    end = around;
  }

  /** Begin a message within another; {@code leave} it with {@code rise}. */
  void descend() throws Refused {
    if (++nested > MOST_NESTED) {
      throw Refused.MALFORMED;
    }
  }

  void rise() {
    nested--;
  }

  /** Pass over the value behind a tag. */
  void skip(int tag) throws Refused {
    switch (tag & 7) {
      case VARINT -> varint();
      case FIXED64 -> passed(Long.BYTES);
      case BYTES -> passed(length());
      case FIXED32 -> passed(Integer.BYTES);
      case START_GROUP -> {
        descend();
        int inner = tag();
        while (inner != (tag & ~7 | END_GROUP)) {
          skip(inner);
          inner = tag();
        }
        rise();
      }
      default -> throw Refused.MALFORMED;
    }
  }

  private int length() throws Refused {
    long length = varint();
    if (length < 0 || length > Integer.MAX_VALUE) {
      throw Refused.MALFORMED;
    }
    return (int) length;
  }

  /** Where these bytes begin, after passing over them. */
  private int passed(int length) throws Refused {
    if (length > end - at) {
      throw Refused.MALFORMED;
    }
    at += length;
    return at - length;
  }

  private boolean isAscii(int from, int to) {
    int bits = 0;
    for (int each = from; each < to; each++) {
      bits |= bytes[each];
    }
    return bits >= 0;
  }
}
