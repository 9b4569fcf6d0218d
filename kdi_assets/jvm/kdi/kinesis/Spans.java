package kdi.kinesis;

import java.io.Serializable;
import java.util.stream.Stream;

/**
 * Consecutive spans of a shard, to be read again.
 *
 * @param range of all of them
 * @param ends of each, the number after its last record; with blanks between, because py4j makes no arrays of longs
 * @param digests of each, of the sequence numbers of its records
 */
public record Spans(ShardRange range, String ends, String digests) implements Serializable {
  static long[] numbers(String text) {
    return Stream.of(text.split(" ")).mapToLong(Long::parseLong).toArray();
  }
}
