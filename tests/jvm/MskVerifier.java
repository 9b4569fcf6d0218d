import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.URLDecoder;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import kdi.kafka.MskToken;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** What MSK's brokers do with a token, for one pair of keys: action, time, and the signature made again. */
public final class MskVerifier implements AuthenticateCallbackHandler {
  private Map<String, ?> keys = Map.of();

  @Override
  public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
    keys = entries.get(0).getOptions();
  }

  @Override
  public void handle(Callback[] callbacks) {
    for (Callback callback : callbacks) {
      if (callback instanceof OAuthBearerValidatorCallback asked) {
        OAuthBearerToken known = known(asked.tokenValue());
        if (known == null) {
          asked.error("access_denied", null, null);
        } else {
          asked.token(known);
        }
      } else if (callback instanceof OAuthBearerExtensionsValidatorCallback asked) {
        asked.inputExtensions().map().keySet().forEach(asked::valid);
      }
    }
  }

  @Override
  public void close() {}

  private OAuthBearerToken known(String given) {
    Properties query = query(given);
    DateTimeFormatter form = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    Instant at = Instant.from(form.parse(query.getProperty("X-Amz-Date")));
    String session = query.getProperty("X-Amz-Security-Token", "");
    OAuthBearerToken right =
        MskToken.signed(key("region"), key("accessKeyId"), key("secretAccessKey"), session, at);
    return query(right.value()).equals(query) && right.lifetimeMs() > System.currentTimeMillis() ? right : null;
  }

  /** The parameters; their order differs from signer to signer. */
  private static Properties query(String token) {
    URI address = URI.create(new String(Base64.getUrlDecoder().decode(token), UTF_8));
    Properties query = new Properties();
    for (String parameter : address.getRawQuery().split("&")) {
      String[] parts = parameter.split("=", 2);
      query.setProperty(parts[0], URLDecoder.decode(parts[1], UTF_8));
    }
    return query;
  }

  private String key(String name) {
    return keys.get(name).toString();
  }
}
