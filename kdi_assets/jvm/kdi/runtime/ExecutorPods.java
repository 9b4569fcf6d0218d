package kdi.runtime;

import io.fabric8.kubernetes.api.model.ContainerState;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.lang.reflect.Field;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SchedulerBackend;

/** What Kubernetes says of the executor pods of a driver that has no executor; Spark only logs it, or nothing. */
final class ExecutorPods {
  private static final long ANSWER_SECONDS = 10;
  /** So that the whole reason of a cancelled job is within what is read of an exception of Spark's. */
  private static final int LONGEST = 200;

  private ExecutorPods() {}

  /** Why the newest pod is no executor, in one line without braces and double quotes; empty on other clusters. */
  static String said(SparkContext spark) {
    if (!spark.master().startsWith("k8s:")) {
      return "";
    }
    try {
      return plain(CompletableFuture.supplyAsync(() -> newest(spark)).get(ANSWER_SECONDS, TimeUnit.SECONDS));
    } catch (TimeoutException silent) {
      return "Kubernetes does not answer";
    } catch (ExecutionException failed) {
      return plain(words(failed.getCause()));
    } catch (InterruptedException stopped) {
      return "";
    }
  }

  private static String newest(SparkContext spark) {
    String namespace = spark.conf().get("spark.kubernetes.namespace", "default");
    List<Pod> pods = client(spark.schedulerBackend()).pods().inNamespace(namespace)
        .withLabel("spark-app-selector", spark.applicationId()).withLabel("spark-role", "executor").list().getItems();
    return pods.stream().max(Comparator.comparing(pod -> pod.getMetadata().getCreationTimestamp()))
        .map(pod -> pod.getMetadata().getName() + " " + state(pod, spark))
        .orElse("it has no pod, because Kubernetes refuses them, or they end at once, without reaching the driver at "
            + driver(spark));
  }

  private static String state(Pod pod, SparkContext spark) {
    String now = "is " + pod.getStatus().getPhase();
    for (ContainerStatus container : pod.getStatus().getContainerStatuses()) {
      ContainerState state = container.getState();
      if (state != null && state.getWaiting() != null) {
        String message = state.getWaiting().getMessage();
        return "waits: " + state.getWaiting().getReason() + (message == null ? "" : " " + message);
      }
      if (state != null && state.getTerminated() != null) {
        now = "ended with code " + state.getTerminated().getExitCode();
      }
    }
    for (PodCondition condition : pod.getStatus().getConditions()) {
      if ("PodScheduled".equals(condition.getType()) && "False".equals(condition.getStatus())) {
        return "has no node: " + condition.getMessage();
      }
    }
    return now + ", and has not reached the driver at " + driver(spark);
  }

  private static String driver(SparkContext spark) {
    return spark.conf().get("spark.driver.host") + ":" + spark.conf().get("spark.driver.port");
  }

  /** Spark's own, with its account: another one would have to be configured in the same way. */
  private static KubernetesClient client(SchedulerBackend backend) {
    for (Field field : backend.getClass().getDeclaredFields()) {
      if (KubernetesClient.class.isAssignableFrom(field.getType())) {
        try {
          field.setAccessible(true);
          return (KubernetesClient) field.get(backend);
        } catch (IllegalAccessException hidden) {
          throw new IllegalStateException(hidden);
        }
      }
    }
    throw new IllegalStateException(backend.getClass() + " has no client of Kubernetes");
  }

  private static String words(Throwable failed) {
    Status status = failed instanceof KubernetesClientException refused ? refused.getStatus() : null;
    return status != null && status.getMessage() != null ? status.getMessage() : String.valueOf(failed);
  }

  private static String plain(String said) {
    String line = said.replace('"', '\'').replaceAll("[{}\\\\\\p{Cntrl}]+", " ");
    return line.length() > LONGEST ? line.substring(0, LONGEST - 1) + "…" : line;
  }
}
