package kdi.expressions;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.expressions.url.ParseUrlEvaluator;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Spark's {@code parse_url} of one constant part.
 *
 * <p>Spark makes a {@code java.net.URI} of each URL. A plain one, {@code scheme://host[:port][/path][?query][#fragment]}
 * in ASCII with a host name, is read here, by the same rules; Spark's own code reads every other.
 */
public final class UrlPart implements Serializable {
  private static final int SCHEME = 1;
  private static final int PATH = 2;
  /** What a query and a fragment may have. */
  private static final int QUERY = 4;
  private static final int LETTER = 8;
  private static final int LETTER_OR_DIGIT = 16;
  private static final int HEX = 32;
  private static final byte[] KINDS = new byte[256];
  /** More digits may be no int, which Spark refuses. */
  private static final int MOST_PORT_DIGITS = 9;

  static {
    allow(LETTER | LETTER_OR_DIGIT | SCHEME | PATH | QUERY, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    allow(LETTER_OR_DIGIT | SCHEME | PATH | QUERY, "0123456789");
    allow(SCHEME, "+-.");
    allow(PATH | QUERY, "-_.!~*'():@&=+$,;/");
    allow(QUERY, "?[]");
    allow(HEX, "0123456789abcdefABCDEF");
  }

  private final Part part;
  private final ParseUrlEvaluator spark;

  /** The parts by the names that Spark gives them. */
  enum Part {
    PROTOCOL,
    AUTHORITY,
    HOST,
    PATH,
    QUERY,
    FILE,
    REF;

    /** The part; null if there is none of the name, or if it is not read here. */
    static Part of(String name) {
      for (Part part : values()) {
        if (part.name().equals(name)) {
          return part;
        }
      }
      return null;
    }
  }

  /**
   * @param spark reads what is not plain, with an error or null for what is no URL
   */
  UrlPart(Part part, ParseUrlEvaluator spark) {
    this.part = part;
    this.spark = spark;
  }

  /**
   * The part of a URL.
   *
   * @param name of the part, as Spark's function has it
   */
  public static UTF8String of(UTF8String url, UTF8String name, UrlPart part) {
    Ends ends = new Ends(url);
    return ends.arePlain() ? ends.of(part.part) : (UTF8String) part.spark.evaluate(url, name);
  }

  /** For plans. */
  @Override
  public String toString() {
    return "of " + part;
  }

  private static void allow(int kinds, String characters) {
    for (char each : characters.toCharArray()) {
      KINDS[each] |= (byte) kinds;
    }
  }

  /** Where the parts of a URL end, as distances from its first byte. */
  private static final class Ends {
    private final byte[] bytes;
    private final int first;
    private final int length;
    private int scheme;
    private int host;
    private int authority;
    private int path;
    private int query;

    Ends(UTF8String url) {
      boolean onHeap = url.getBaseObject() instanceof byte[];
      bytes = onHeap ? (byte[]) url.getBaseObject() : url.getBytes();
      first = onHeap ? (int) (url.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET) : 0;
      length = url.numBytes();
    }

    /** Finds the ends; false if the URL is not plain. */
    boolean arePlain() {
      scheme = past(SCHEME, 0);
      if (!is(LETTER, 0) || byteAt(scheme) != ':' || byteAt(scheme + 1) != '/' || byteAt(scheme + 2) != '/') {
        return false;
      }
      host = pastHost(scheme + 3);
      authority = host < 0 ? -1 : pastPort(host);
      if (authority < 0) {
        return false;
      }
      path = authority;
      if (byteAt(authority) == '/') {
        path = pastEscaped(PATH, authority);
      }
      query = byteAt(path) == '?' ? pastEscaped(QUERY, path + 1) : path;
      int end = byteAt(query) == '#' ? pastEscaped(QUERY, query + 1) : query;
      return end == length;
    }

    /** The part; null if the URL has none. */
    UTF8String of(Part part) {
      return switch (part) {
        case PROTOCOL -> text(0, scheme);
        case AUTHORITY -> text(scheme + 3, authority);
        case HOST -> text(scheme + 3, host);
        case PATH -> text(authority, path);
        case QUERY -> query == path ? null : text(path + 1, query);
        case FILE -> text(authority, query);
        case REF -> query == length ? null : text(query + 1, length);
      };
    }

    /** Past labels with dots between them, the last of which begins with a letter; -1 for all else. */
    private int pastHost(int from) {
      int label = from;
      while (true) {
        int end = label;
        while (is(LETTER_OR_DIGIT, end) || byteAt(end) == '-') {
          end++;
        }
        if (end == label || byteAt(label) == '-' || byteAt(end - 1) == '-') {
          return -1;
        }
        if (byteAt(end) != '.') {
          return is(LETTER, label) ? end : -1;
        }
        label = end + 1;
      }
    }

    private int pastPort(int from) {
      if (byteAt(from) != ':') {
        return from;
      }
      int end = from + 1;
      while (byteAt(end) >= '0' && byteAt(end) <= '9') {
        end++;
      }
      return end - from - 1 > MOST_PORT_DIGITS ? -1 : end;
    }

    private int past(int kind, int from) {
      int end = first + from;
      while (end < first + length && (KINDS[bytes[end] & 0xFF] & kind) != 0) {
        end++;
      }
      return end - first;
    }

    private int pastEscaped(int kind, int from) {
      int end = past(kind, from);
      while (byteAt(end) == '%' && is(HEX, end + 1) && is(HEX, end + 2)) {
        end = past(kind, end + 3);
      }
      return end;
    }

    private boolean is(int kind, int place) {
      return (KINDS[byteAt(place) & 0xFF] & kind) != 0;
    }

    /** The byte; 0 past the end, which no part may have. */
    private byte byteAt(int place) {
      return place < length ? bytes[first + place] : 0;
    }

    /** A text that refers to the URL's bytes. */
    private UTF8String text(int from, int to) {
      return UTF8String.fromBytes(bytes, first + from, to - from);
    }
  }
}
