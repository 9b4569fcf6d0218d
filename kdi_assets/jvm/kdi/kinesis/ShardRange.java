package kdi.kinesis;

import java.io.Serializable;
import java.math.BigInteger;

/**
 * What is read of one shard.
 *
 * @param shard its id
 * @param partition its number, which rows have as their partition
 * @param offset the number of the first record
 * @param after a sequence number: its record and those before it are not read; empty: see {@code at}
 * @param inclusive whether the record {@code after} is read, too; only by polling
 * @param horizon whether to begin at the oldest record in any case: the record {@code after} is gone
 * @param at without {@code after}, the arrival in milliseconds since 1970 to begin at; negative: the oldest record
 * @param until records that arrived later are not read, in milliseconds since 1970
 * @param most records are read, and those that share an aggregate with the last of them
 * @param firstHashKey of the shard; a user record of another one does not belong here
 * @param lastHashKey inclusive
 */
public record ShardRange(
    String shard,
    int partition,
    long offset,
    String after,
    boolean inclusive,
    boolean horizon,
    long at,
    long until,
    long most,
    BigInteger firstHashKey,
    BigInteger lastHashKey)
    implements Serializable {
  /** The sequence number after which to begin; empty: at {@code at}, or at the oldest record. */
  String startsAfter() {
    return horizon ? "" : after;
  }

  /** The sequence number of the record before the first that is read; null without one. */
  String lastBefore() {
    if (after.isEmpty()) {
      return null;
    }
    BigInteger number = new BigInteger(after);
    return (inclusive ? number.subtract(BigInteger.ONE) : number).toString();
  }
}
