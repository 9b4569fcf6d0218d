package kdi.kafka;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URLEncoder;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;

/**
 * A token for Amazon MSK: the signed address of the action {@code kafka-cluster:Connect}, in Base64.
 *
 * <p>Source: AWS, "Signature Version 4", authentication by query parameters; a test compares each token with that of
 * Amazon's Python package.
 */
public record MskToken(String value, String principalName, long milliseconds) implements OAuthBearerToken {
  /** The most that MSK takes. */
  private static final int SECONDS = 900;

  private static final DateTimeFormatter TIME =
      DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);

  /** A token that is valid from {@code now} on; {@code session} is empty for keys that are not of a role. */
  public static MskToken signed(String region, String accessKey, String secretKey, String session, Instant now) {
    String time = TIME.format(now), date = time.substring(0, 8);
    String scope = date + "/" + region + "/kafka-cluster/aws4_request";
    String host = "kafka." + region + ".amazonaws.com";
    Map<String, String> query = new TreeMap<>();
    query.put("Action", "kafka-cluster:Connect");
    query.put("X-Amz-Algorithm", "AWS4-HMAC-SHA256");
    query.put("X-Amz-Credential", accessKey + "/" + scope);
    query.put("X-Amz-Date", time);
    query.put("X-Amz-Expires", String.valueOf(SECONDS));
    query.put("X-Amz-SignedHeaders", "host");
    if (!session.isEmpty()) {
      query.put("X-Amz-Security-Token", session);
    }
    String parameters =
        query.entrySet().stream()
            .map(parameter -> parameter.getKey() + "=" + escaped(parameter.getValue()))
            .collect(Collectors.joining("&"));
    String request = "GET\n/\n" + parameters + "\nhost:" + host + "\n\nhost\n" + digest("");
    byte[] key = ("AWS4" + secretKey).getBytes(UTF_8);
    for (String part : new String[] {date, region, "kafka-cluster", "aws4_request"}) {
      key = hmac(key, part);
    }
    byte[] signature = hmac(key, "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + digest(request));
    String signed = parameters + "&X-Amz-Signature=" + HexFormat.of().formatHex(signature) + "&User-Agent=kdi-assets";
    byte[] address = ("https://" + host + "/?" + signed).getBytes(UTF_8);
    String value = Base64.getUrlEncoder().withoutPadding().encodeToString(address);
    return new MskToken(value, accessKey, Instant.from(TIME.parse(time)).toEpochMilli());
  }

  @Override
  public Set<String> scope() {
    return Set.of();
  }

  @Override
  public long lifetimeMs() {
    return milliseconds + SECONDS * 1000L;
  }

  @Override
  public Long startTimeMs() {
    return milliseconds;
  }

  /** Without the token, which would open the brokers to readers of a log. */
  @Override
  public String toString() {
    return "MskToken of " + principalName;
  }

  private static String escaped(String text) {
    return URLEncoder.encode(text, UTF_8).replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
  }

  private static String digest(String text) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)));
    } catch (GeneralSecurityException missing) {
      throw new IllegalStateException(missing);
    }
  }

  private static byte[] hmac(byte[] key, String text) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      return mac.doFinal(text.getBytes(UTF_8));
    } catch (GeneralSecurityException missing) {
      throw new IllegalStateException(missing);
    }
  }
}
