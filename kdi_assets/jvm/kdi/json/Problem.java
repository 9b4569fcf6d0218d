package kdi.json;

import java.io.Serializable;
import org.apache.spark.unsafe.types.UTF8String;

/** Why a message is no record. */
final class Problem implements Serializable {
  final UTF8String reason;
  final UTF8String field;
  private final int rank;

  /** One of the whole message. */
  Problem(String reason) {
    this(reason, null, -1);
  }

  /**
   * @param rank of the problems that a message has, the one of the lowest rank is told
   */
  Problem(String reason, String field, int rank) {
    this.reason = UTF8String.fromString(reason);
    this.field = UTF8String.fromString(field);
    this.rank = rank;
  }

  boolean isOfField() {
    return field != null;
  }

  /** The one of two that is told; either may be null. */
  static Problem first(Problem one, Problem other) {
    return one == null || (other != null && other.rank < one.rank) ? other : one;
  }
}
