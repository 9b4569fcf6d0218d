package kdi.kinesis;

/**
 * Records that were read again are not those that were read first.
 *
 * <p>The message has the stream, the shard, the number of the first record of the span, the sequence number at which
 * the reading began, and the difference, with blanks between.
 */
public final class SpanDiffers extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  SpanDiffers(String stream, ShardRange range, long start, String detail) {
    super(stream + " " + range.shard() + " " + start + " " + range.after() + " " + detail);
  }
}
