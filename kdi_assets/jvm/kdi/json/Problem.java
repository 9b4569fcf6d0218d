package kdi.json;

import java.io.Serializable;
import org.apache.spark.unsafe.types.UTF8String;

/** Why a message does not become a record. */
final class Problem implements Serializable {
  final UTF8String reason;
  final UTF8String field;
  private final int rank;

  /** A problem of the whole message. */
  Problem(String reason) {
    this(reason, null, -1);
  }

  /**
   * @param rank of several problems, the message gets the one with the lowest rank
   */
  Problem(String reason, String field, int rank) {
    this.reason = UTF8String.fromString(reason);
    this.field = UTF8String.fromString(field);
    this.rank = rank;
  }

  boolean isOfField() {
    return field != null;
  }

  /** The problem with the lower rank; either may be null. */
  static Problem first(Problem one, Problem other) {
    return one == null || (other != null && other.rank < one.rank) ? other : one;
  }
}
