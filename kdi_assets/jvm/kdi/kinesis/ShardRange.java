package kdi.kinesis;

import java.io.Serializable;

/**
 * What is read of one shard.
 *
 * @param shard its id
 * @param partition its number, which rows have as their partition
 * @param offset the number of the first record
 * @param after a sequence number: its record and those before it are not read; empty: see {@code at}
 * @param inclusive whether the record {@code after} is read, too
 * @param horizon whether to begin at the oldest record in any case: the record {@code after} is gone
 * @param at without {@code after}, the arrival in milliseconds since 1970 to begin at; negative: the oldest record
 * @param until records that arrived later are not read, in milliseconds since 1970
 * @param most records are read
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
    long most)
    implements Serializable {}
