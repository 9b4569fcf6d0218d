package kdi.protobuf;

import java.util.ArrayList;
import java.util.List;

/**
 * Which message of a file a payload is: as {@code framing.split_message_index}, on the executors.
 *
 * <p>A count and that many places, each a zigzag varint; the count 0 stands for the first message of the file.
 */
final class MessageIndex {
  private static final int MOST_NESTED = 100;
  private static final int MOST_VARINT_BYTES = 5;
  private static final List<Integer> FIRST_MESSAGE = List.of(0);

  /** Why there is none; null if there is one. */
  final String refusal;

  final List<Integer> path;

  /** Where in the payload the message begins. */
  final int end;

  private MessageIndex(String refusal, List<Integer> path, int end) {
    this.refusal = refusal;
    this.path = path;
    this.end = end;
  }

  static MessageIndex of(byte[] payload) {
    if (payload.length == 0) {
      return new MessageIndex("too_short", null, 0);
    }
    if (payload[0] == 0) { // the usual case
      return new MessageIndex(null, FIRST_MESSAGE, 1);
    }
    Places read = new Places(payload);
    int count = read.next();
    List<Integer> path = new ArrayList<>();
    while (0 < count && count <= MOST_NESTED && path.size() < count) {
      int place = read.next();
      if (place < 0) {
        return new MessageIndex("bad_message_index", null, 0);
      }
      path.add(place);
    }
    return path.isEmpty() ? new MessageIndex("bad_message_index", null, 0) : new MessageIndex(null, path, read.at);
  }

  /** The numbers of an index. */
  private static final class Places {
    private final byte[] bytes;
    private int at;

    Places(byte[] bytes) {
      this.bytes = bytes;
    }

    /** The next number, or a negative one if there is none of 32 bits. */
    int next() {
      long number = 0;
      for (int each = 0; each < MOST_VARINT_BYTES && at < bytes.length; each++) {
        byte next = bytes[at++];
        number |= (long) (next & 0x7F) << 7 * each;
        if (next >= 0) {
          return number > 0xFFFFFFFFL ? -1 : (int) (number >>> 1 ^ -(number & 1));
        }
      }
      return -1;
    }
  }
}
