package kdi.kafka;

import java.security.GeneralSecurityException;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Cipher;
import javax.crypto.EncryptedPrivateKeyInfo;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;

/** Opens the key of a client certificate. Kafka's client cannot open what OpenSSL writes today (PBES2) on Java 17. */
public final class ClientKey {
  private static final Pattern LOCKED =
      Pattern.compile("-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END ENCRYPTED PRIVATE KEY-----", Pattern.DOTALL);

  private ClientKey() {}

  /** The key of a text in PEM without its password, PKCS #8; the text itself if its key has none. */
  public static String opened(String pem, String password) throws Exception {
    Matcher locked = LOCKED.matcher(pem);
    if (!locked.find()) {
      return pem;
    }
    EncryptedPrivateKeyInfo key = new EncryptedPrivateKeyInfo(Base64.getMimeDecoder().decode(locked.group(1)));
    String algorithm = algorithm(key);
    Cipher cipher = Cipher.getInstance(algorithm);
    PBEKeySpec secret = new PBEKeySpec(password.toCharArray());
    cipher.init(
        Cipher.DECRYPT_MODE, SecretKeyFactory.getInstance(algorithm).generateSecret(secret), key.getAlgParameters());
    String content = Base64.getMimeEncoder().encodeToString(key.getKeySpec(cipher).getEncoded());
    return "-----BEGIN PRIVATE KEY-----\n" + content + "\n-----END PRIVATE KEY-----\n";
  }

  /** Of PBES2 the parameters name the algorithm. */
  private static String algorithm(EncryptedPrivateKeyInfo key) throws GeneralSecurityException {
    return key.getAlgName().equals("PBES2") ? key.getAlgParameters().toString() : key.getAlgName();
  }
}
