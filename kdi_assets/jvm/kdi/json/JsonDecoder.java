package kdi.json;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * JSON messages to records of one type, in one pass; no value is changed silently.
 *
 * <p>Spark's plans hold it as a constant argument of the static methods, which are called once per message.
 */
public final class JsonDecoder implements Serializable {
  /** Spark's JSON of a variant is made by recursion, and at some 950 levels that ends the JVM. */
  static final int MOST_LEVELS = 500;

  private static final JsonFactory JSON =
      JsonFactory.builder()
          // Interned names stay in the JVM, and threads wait for its table.
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          // Names chosen to collide cost time, but are no reason to fail.
          .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
          // Only UTF-8, without a byte order mark.
          .disable(JsonFactory.Feature.CHARSET_DETECTION)
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(MOST_LEVELS)
                  .maxNumberLength(Integer.MAX_VALUE)
                  .maxStringLength(Integer.MAX_VALUE)
                  .maxNameLength(Integer.MAX_VALUE)
                  .build())
          .build();

  private static final Problem BLANK = new Problem("blank");
  private static final Problem INVALID_UTF8 = new Problem("invalid_utf8");
  private static final Problem MALFORMED = new Problem("malformed_json");
  private static final Problem TRAILING_TEXT = new Problem("trailing_text");
  private static final Problem NOT_AN_OBJECT = new Problem("not_an_object");

  /** For a message that has unknown fields, if they cannot be read: they must not be passed over. */
  private static final ArrayData UNREAD =
      entries(List.of(Unknown.entry(UTF8String.fromString("(unread)"), UTF8String.fromString("(unread)"), null)));

  private final StructField root;
  private final boolean salvages;
  private final UsualPaths usual = new UsualPaths();

  /**
   * @param record the type of the records
   * @param salvages whether a value that does not fit its type is left out, and the message becomes a record
   */
  public JsonDecoder(StructType record, boolean salvages) {
    this.root = new Types().root(record);
    this.salvages = salvages;
  }

  /**
   * Decode a message.
   *
   * @return {@code struct<record, reason: string, field: string, paths: array<string>, misfits: array<struct<path:
   *     string, place: string, value: variant>>>}: either a record, with the sorted paths of its unknown fields (null
   *     if there are none) and the values that were left out; or a reason, with the faulty field (null for the whole
   *     message). Null without a payload.
   */
  public static InternalRow decode(byte[] payload, JsonDecoder decoder) {
    if (payload == null) {
      return null;
    }
    try {
      Pass pass = new Pass(payload, false, decoder.usual);
      InternalRow record = decoder.read(pass);
      if (record == null && decoder.salvages && pass.problem.isOfField()) {
        Pass again = new Pass(payload, true, decoder.usual);
        InternalRow salvaged = decoder.read(again);
        if (salvaged != null && again.isSalvageable()) {
          return document(salvaged, null, again.paths(decoder.root), entries(again.misfits));
        }
      }
      return record == null
          ? document(null, pass.problem, null, null)
          : document(record, null, pass.paths(decoder.root), null);
    } catch (IOException | RuntimeException broken) {
      // Whatever it is, it must not stop the messages after this one.
      return document(null, MALFORMED, null, null);
    }
  }

  /**
   * The unknown fields of a message that was decoded.
   *
   * @return {@code array<struct<path: string, place: string, value: variant>>}
   */
  public static ArrayData unknown(byte[] payload, JsonDecoder decoder) {
    try {
      return entries(Unknown.of(payload, decoder.root, true));
    } catch (IOException | RuntimeException broken) {
      return UNREAD;
    }
  }

  /** Whether a text is JSON that Spark may make a variant of, and text of that again: it has few levels and digits. */
  public static boolean isBounded(String text) {
    if (text == null) {
      return false;
    }
    try (JsonParser parser = JSON.createParser(text)) {
      for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
        if (token.isNumeric() && parser.getTextLength() > Watched.MOST_DIGITS) {
          return false;
        }
      }
      return true;
    } catch (IOException broken) {
      return false;
    }
  }

  static JsonParser parser(byte[] payload, int from, int to) throws IOException {
    return JSON.createParser(payload, from, to - from);
  }

  private static InternalRow document(InternalRow record, Problem problem, ArrayData paths, ArrayData misfits) {
    UTF8String reason = problem == null ? null : problem.reason;
    UTF8String field = problem == null ? null : problem.field;
    return new GenericInternalRow(new Object[] {record, reason, field, paths, misfits});
  }

  /** The record; null and {@code pass.problem} if there is none. */
  private InternalRow read(Pass pass) throws IOException {
    if (isBlank(pass.payload)) {
      pass.problem = BLANK;
      return null;
    }
    if (!Text.isValid(pass.payload)) {
      pass.problem = INVALID_UTF8;
      return null;
    }
    Problem unless = MALFORMED;
    try (JsonParser parser = parser(pass.payload, 0, pass.payload.length)) {
      Object found = Field.MISFIT;
      if (parser.nextToken() == JsonToken.START_OBJECT) {
        found = root.read(parser, pass);
      } else {
        parser.skipChildren();
        pass.problem = NOT_AN_OBJECT;
      }
      unless = TRAILING_TEXT;
      if (parser.nextToken() == null) {
        return found == Field.MISFIT ? null : (InternalRow) found;
      }
    } catch (JsonProcessingException broken) {
      // Its text has bytes of the message; the reason is enough.
    }
    pass.problem = unless;
    return null;
  }

  /** For plans. */
  @Override
  public String toString() {
    return "record of " + root.names.length + " fields";
  }

  private static boolean isBlank(byte[] payload) {
    for (byte each : payload) {
      if (each != ' ' && each != '\t' && each != '\n' && each != '\r') {
        return false;
      }
    }
    return true;
  }

  private static ArrayData entries(List<InternalRow> entries) {
    return new GenericArrayData(entries.toArray());
  }
}
