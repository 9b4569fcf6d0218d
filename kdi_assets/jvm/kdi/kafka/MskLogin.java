package kdi.kafka;

import java.time.Instant;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * The login of Kafka's client to Amazon MSK by IAM: signs a token whenever the client wants one.
 *
 * <p>The keys are options of the login: {@code region}, {@code accessKeyId}, {@code secretAccessKey}, and for keys of a
 * role {@code sessionToken}. The client asks again before a token ends.
 */
public final class MskLogin implements AuthenticateCallbackHandler {
  private Map<String, ?> options = Map.of();

  @Override
  public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
    options = entries.get(0).getOptions();
  }

  @Override
  public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
    for (Callback callback : callbacks) {
      if (callback instanceof OAuthBearerTokenCallback wanted) {
        wanted.token(
            MskToken.signed(
                option("region"),
                option("accessKeyId"),
                option("secretAccessKey"),
                option("sessionToken"),
                Instant.now()));
      } else if (callback instanceof SaslExtensionsCallback wanted) {
        wanted.extensions(SaslExtensions.empty());
      } else {
        throw new UnsupportedCallbackException(callback);
      }
    }
  }

  @Override
  public void close() {}

  private String option(String name) {
    Object value = options.get(name);
    return value == null ? "" : value.toString();
  }
}
