package kdi.kinesis;

/** Records that were read again are not those that were read first; the message begins with the number of the first. */
public final class SpanDiffers extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  SpanDiffers(long start, String detail) {
    super(start + " " + detail);
  }
}
