package kdi.protobuf;

/** What was found in the values of one message. */
final class Pass {
  /** The first field, in the order of the record, with a value that its column cannot hold; null if there is none. */
  Message outOfRange;

  /** Whether a text that is checked late is no UTF-8. */
  boolean hasInvalidText;

  void outOfRange(Message found) {
    if (outOfRange == null || found.rank < outOfRange.rank) {
      outOfRange = found;
    }
  }
}
