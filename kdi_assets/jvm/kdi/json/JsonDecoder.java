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
 * JSON messages to records of one type, in one pass; nothing is changed in silence.
 *
 * <p>It stands in Spark's plans as a constant beside the static methods, which are called once per message.
 */
public final class JsonDecoder implements Serializable {
  private static final JsonFactory JSON =
      JsonFactory.builder()
          // Its strings stay in a table of the JVM, and other threads wait for it.
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          // Names that someone chose to collide cost time, and are no reason to fail.
          .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
          // UTF-8 and nothing else; a byte order mark is no JSON.
          .disable(JsonFactory.Feature.CHARSET_DETECTION)
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(1000)
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

  private final StructField root;
  private final boolean salvages;

  /**
   * @param record the type of the records
   * @param salvages whether a value that does not suit its type is left out, and its message becomes a record
   */
  public JsonDecoder(StructType record, boolean salvages) {
    this.root = new Types().root(record);
    this.salvages = salvages;
  }

  /**
   * Decode a message.
   *
   * @return {@code struct<record, reason: string, field: string, paths: array<string>, misfits: array<struct<path:
   *     string, place: string, value: variant>>>}: a record, or a reason and the field at fault, null if it is the whole
   *     message; of a record, the paths of the fields that its type has not, sorted, each once, null if there are none,
   *     and the values that were left out. Null for no payload.
   */
  public static InternalRow decode(byte[] payload, JsonDecoder decoder) {
    if (payload == null) {
      return null;
    }
    try {
      Pass pass = new Pass(payload, false);
      InternalRow record = decoder.read(pass);
      if (record == null && decoder.salvages && pass.problem.isOfField()) {
        Pass again = new Pass(payload, true);
        InternalRow salvaged = decoder.read(again);
        if (salvaged != null && !again.condemned) {
          return document(salvaged, null, again.paths(decoder.root), entries(again.misfits));
        }
      }
      return record == null
          ? document(null, pass.problem, null, null)
          : document(record, null, pass.paths(decoder.root), null);
    } catch (IOException impossible) {
      throw new IllegalStateException("a message is no file", impossible);
    }
  }

  /**
   * What a message that was decoded has and its record has not.
   *
   * @return {@code array<struct<path: string, place: string, value: variant>>}
   */
  public static ArrayData unknown(byte[] payload, JsonDecoder decoder) {
    try (JsonParser parser = parser(payload, 0, payload.length)) {
      parser.nextToken();
      return entries(Unknown.of(parser, decoder.root));
    } catch (IOException impossible) {
      throw new IllegalStateException("it was decoded before", impossible);
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

  /** The record; null with {@code pass.problem}. */
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
      // What it says names offsets and bytes of the message; the reason is enough.
    }
    pass.problem = unless;
    return null;
  }

  /** What plans show. */
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
