package kdi.avro;

/** What was found in the texts of one datum. */
final class Pass {
  /** Whether a text was read that is no UTF-8. */
  boolean hasInvalidText;

  /** The first field of the record with such a text; null if there is none. */
  Type invalid;

  void invalid(Type found) {
    if (invalid == null || found.rank < invalid.rank) {
      invalid = found;
    }
  }
}
