package kdi.kinesis;

/** A shard answers again and again, and neither with a record nor with its end. */
final class EndlessAnswers extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  EndlessAnswers(String message) {
    super(message);
  }
}
