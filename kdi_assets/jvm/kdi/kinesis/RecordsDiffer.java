package kdi.kinesis;

/**
 * Records on disk were lost, and others were read in their place: they have the same numbers, which only count.
 *
 * <p>The message has the stream and the number of the shard.
 */
final class RecordsDiffer extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  RecordsDiffer(String message) {
    super(message);
  }
}
