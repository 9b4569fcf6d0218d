package kdi.kinesis;

import java.util.concurrent.ThreadLocalRandom;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.exception.SdkServiceException;
import software.amazon.awssdk.services.kinesis.model.InternalFailureException;
import software.amazon.awssdk.services.kinesis.model.KinesisException;
import software.amazon.awssdk.services.kinesis.model.KmsThrottlingException;
import software.amazon.awssdk.services.kinesis.model.LimitExceededException;
import software.amazon.awssdk.services.kinesis.model.ProvisionedThroughputExceededException;

/** Which calls are made again, and how long after. */
final class Retries {
  static final int PAUSE_MILLIS = 200;
  static final int TRIES_WITHOUT_ANSWER = 3;
  private static final int TRIES = 300;

  private Retries() {}

  static boolean isThrottle(SdkException failed) {
    return failed instanceof SdkServiceException answer && answer.isThrottlingException()
        || failed instanceof ProvisionedThroughputExceededException
        || failed instanceof LimitExceededException
        || failed instanceof KmsThrottlingException;
  }

  /** @param tries so far that failed so, throttles apart from others */
  static boolean mayPass(SdkException failed, int tries) {
    if (isThrottle(failed)) {
      return tries < TRIES;
    }
    boolean passes =
        failed instanceof SdkClientException
            || failed instanceof InternalFailureException // within an event stream, its answer has the status 200
            || ((SdkServiceException) failed).statusCode() >= 500;
    return passes && tries < TRIES_WITHOUT_ANSWER;
  }

  /** The same error with its code in its text: the SDK has no class for those that every service may answer. */
  static SdkException named(SdkException failed) {
    if (!(failed instanceof KinesisException answer) || answer.getClass() != KinesisException.class) {
      return failed;
    }
    String text = answer.awsErrorDetails().errorCode() + ": " + answer.getMessage();
    return KinesisException.builder().message(text).statusCode(answer.statusCode()).build();
  }

  /** Waits so long, or up to a pause longer: not all shards at once. */
  static void waitAbout(int millis) {
    sleep(millis + ThreadLocalRandom.current().nextInt(PAUSE_MILLIS));
  }

  static void sleep(int millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException killed) {
      throw killed(killed);
    }
  }

  static IllegalStateException killed(InterruptedException killed) {
    Thread.currentThread().interrupt();
    return new IllegalStateException("the task was killed", killed);
  }
}
