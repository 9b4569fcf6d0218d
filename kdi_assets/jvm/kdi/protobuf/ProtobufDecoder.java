package kdi.protobuf;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Protobuf messages of one type to records, in one pass, with the verdicts of Protobuf's own parser.
 *
 * <p>Spark's plans hold it as a constant argument of the static method, which is called once per message.
 */
public final class ProtobufDecoder implements Serializable {
  private static final Mistakes.Problem MALFORMED = new Mistakes.Problem("malformed_protobuf", "");

  // A text that came twice, and only the first was no UTF-8.
  private static final Mistakes.Problem INVALID_UTF8 = new Mistakes.Problem("invalid_utf8", "");

  private final Message root;
  private final Map<Long, Writer> writers = new HashMap<>();

  /**
   * @param described the message's fields as JSON, and those of the writers, from {@code kernel.py}
   */
  public ProtobufDecoder(String described) throws JsonProcessingException {
    JsonNode read = new ObjectMapper().readTree(described);
    this.root = (Message) new Types().of(read.get("record"), "");
    read.get("writers")
        .fields()
        .forEachRemaining(each -> writers.put(Long.valueOf(each.getKey()), new Writer(each.getValue())));
  }

  /**
   * Decode a message.
   *
   * @return {@code struct<record, reason: string, field: string, numbers: array<string>>}: either a record, with the
   *     paths of the fields that it lacks (null if there are none); or a reason, with the faulty field (null for the
   *     whole message). Null without a payload.
   */
  public static InternalRow decode(byte[] payload, ProtobufDecoder decoder) {
    return payload == null ? null : decoder.decoded(payload, 0, null);
  }

  /**
   * Decode a message behind its index; the result is that of {@code decode}.
   *
   * @param schemaId which writer's index and message it is
   */
  public static InternalRow decodeIndexed(byte[] payload, long schemaId, ProtobufDecoder decoder) {
    if (payload == null) {
      return null;
    }
    MessageIndex index = MessageIndex.of(payload);
    if (index.refusal != null) {
      return document(null, new Mistakes.Problem(index.refusal, ""), null);
    }
    Writer writer = decoder.writers.get(schemaId);
    String refusal = writer == null ? "unknown_schema" : writer.refusal(index.path);
    return refusal == null
        ? decoder.decoded(payload, index.end, writer)
        : document(null, new Mistakes.Problem(refusal, ""), null);
  }

  private InternalRow decoded(byte[] payload, int from, Writer writer) {
    Wire wire = new Wire(payload, from, true);
    Partial message = root.empty();
    try {
      root.readFields(wire, message);
      ArrayData numbers = wire.anyUnknown ? unknown(message, payload, from, writer) : null;
      Pass pass = new Pass();
      Object record = root.finished(message, pass);
      if (pass.hasInvalidText) {
        return document(null, why(payload, from, true), numbers);
      }
      if (pass.outOfRange != null) {
        return document(null, new Mistakes.Problem("out_of_range", pass.outOfRange.path), numbers);
      }
      return document(record, null, numbers);
    } catch (Wire.Refused refused) {
      return document(null, why(payload, from, false), null);
    }
  }

  /** Fields that neither the record nor the writer names; the writer's own fields are counted from its schema. */
  private ArrayData unknown(Partial message, byte[] payload, int from, Writer writer) {
    if (writer == null || writer.named.isEmpty()) {
      return Unknown.paths(root, message, Set.of());
    }
    return writer.lacksNone(payload, from) ? null : Unknown.paths(root, message, writer.named);
  }

  /**
   * Why a message is refused.
   *
   * @param checks as in {@code Wire}: whether a value that a later one replaced does not count
   */
  private Mistakes.Problem why(byte[] payload, int from, boolean checks) {
    Partial message = root.empty();
    try {
      root.readFields(new Wire(payload, from, checks), message);
    } catch (Wire.Refused malformed) {
      return MALFORMED;
    }
    Mistakes.Problem found = Mistakes.in(root, message);
    return found == null ? INVALID_UTF8 : found;
  }

  private static InternalRow document(Object record, Mistakes.Problem problem, ArrayData numbers) {
    UTF8String reason = problem == null ? null : UTF8String.fromString(problem.reason());
    UTF8String field = problem == null || problem.field().isEmpty() ? null : UTF8String.fromString(problem.field());
    return new GenericInternalRow(new Object[] {record, reason, field, numbers});
  }

  /** For plans. */
  @Override
  public String toString() {
    return "message of " + root.fields.length + " fields";
  }
}
