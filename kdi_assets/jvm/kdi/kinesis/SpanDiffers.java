package kdi.kinesis;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Records that were read again are not those that were read first.
 *
 * <p>The message has the stream, the shard, the number of the first record, and the difference, with blanks between.
 */
public final class SpanDiffers extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  SpanDiffers(UTF8String stream, String shard, long start, String detail) {
    super(stream + " " + shard + " " + start + " " + detail);
  }
}
