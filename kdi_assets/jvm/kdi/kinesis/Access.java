package kdi.kinesis;

import java.io.Serializable;
import java.net.URI;
import java.time.Duration;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.http.nio.netty.SdkEventLoopGroup;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisBaseClientBuilder;
import software.amazon.awssdk.services.kinesis.KinesisClient;

/** Where Kinesis answers, and the driver's credentials; the session token is empty for keys of a user. */
public final class Access implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final Duration CONNECT = Duration.ofSeconds(10);
  private static final Duration ANSWER = Duration.ofSeconds(30);

  private final String region;
  private final String endpoint;
  private final String keyId;
  private final String secret;
  private final String token;

  /** @param endpoint the URL of another server than AWS; empty: AWS */
  public Access(String region, String endpoint, String keyId, String secret, String token) {
    this.region = region;
    this.endpoint = endpoint;
    this.keyId = keyId;
    this.secret = secret;
    this.token = token;
  }

  /** A client that never tries again by itself: the reader does, and knows what it has read. */
  KinesisClient client() {
    return located(KinesisClient.builder())
        .httpClientBuilder(UrlConnectionHttpClient.builder().connectionTimeout(CONNECT).socketTimeout(ANSWER))
        .build();
  }

  /** The same for answers that are streams of events, which only a client of HTTP/2 takes from AWS. */
  KinesisAsyncClient streamingClient() {
    NettyNioAsyncHttpClient.Builder http =
        NettyNioAsyncHttpClient.builder().eventLoopGroup(Threads.LOOPS).connectionTimeout(CONNECT).readTimeout(ANSWER);
    if (endpoint.startsWith("http:")) {
      http.protocol(Protocol.HTTP1_1); // servers for tests
    }
    return located(KinesisAsyncClient.builder()).httpClientBuilder(http).build();
  }

  /** Of all streaming clients of the JVM: a client with threads of its own takes two seconds to close. */
  private static final class Threads {
    private static final SdkEventLoopGroup LOOPS = SdkEventLoopGroup.builder().numberOfThreads(4).build();
  }

  private <B extends KinesisBaseClientBuilder<B, C>, C> B located(B builder) {
    AwsCredentials keys =
        token.isEmpty() ? AwsBasicCredentials.create(keyId, secret) : AwsSessionCredentials.create(keyId, secret, token);
    builder
        .region(Region.of(region))
        .credentialsProvider(StaticCredentialsProvider.create(keys))
        .overrideConfiguration(o -> o.retryStrategy(r -> r.maxAttempts(1)));
    return endpoint.isEmpty() ? builder : builder.endpointOverride(URI.create(endpoint));
  }
}
