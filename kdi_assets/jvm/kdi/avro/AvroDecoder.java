package kdi.avro;

import java.io.IOException;
import java.io.Serializable;
import org.apache.avro.Schema;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.ResolvingDecoder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Datums of one writer's schema to records of the reader's, in one pass and without generic records.
 *
 * <p>Avro's own decoders read the bytes and resolve the schemas. Spark's plans hold it as a constant argument of the
 * static method, which is called once per message.
 */
public final class AvroDecoder implements Serializable {
  private static final InternalRow MALFORMED = document(null, "malformed_avro", null);
  private static final InternalRow TRAILING_BYTES = document(null, "trailing_bytes", null);

  private final String writer;
  private final String reader;
  private transient ThreadLocal<Reading> readings;

  /**
   * @param writer a schema's text
   * @param reader the text of a schema that {@code reads} accepts
   */
  public AvroDecoder(String writer, String reader) {
    this.writer = writer;
    this.reader = reader;
  }

  /** Whether records of a schema can be made here. */
  public static boolean reads(String reader) {
    return new Types().of(parsed(reader), "") != null;
  }

  /**
   * Decode a datum.
   *
   * @return {@code struct<record, reason: string, field: string>}: either a record; or a reason, with the faulty field
   *     (null for the whole message). Null without a datum.
   */
  public static InternalRow decode(byte[] datum, AvroDecoder decoder) {
    try {
      return datum == null ? null : decoder.reading().decoded(datum);
    } catch (RuntimeException unusable) {
      return MALFORMED; // schemas that cannot be resolved must not stop the messages of others
    }
  }

  private synchronized Reading reading() {
    if (readings == null) {
      readings = ThreadLocal.withInitial(() -> new Reading(writer, reader));
    }
    return readings.get();
  }

  /** What one thread reads with. */
  private static final class Reading {
    private final Type type;
    private final ResolvingDecoder resolver;
    private BinaryDecoder bytes;

    Reading(String writer, String reader) {
      Schema becomes = parsed(reader);
      type = new Types().of(becomes, "");
      resolver = writer.equals(reader) ? null : resolver(parsed(writer), becomes);
    }

    private static ResolvingDecoder resolver(Schema written, Schema becomes) {
      try {
        return DecoderFactory.get().resolvingDecoder(written, becomes, null);
      } catch (IOException impossible) {
        throw new IllegalStateException("nothing is read yet", impossible);
      }
    }

    InternalRow decoded(byte[] datum) {
      bytes = DecoderFactory.get().binaryDecoder(datum, bytes);
      Pass pass = new Pass();
      Object record;
      try {
        record = read(pass);
        if (!bytes.isEnd()) {
          return TRAILING_BYTES;
        }
      } catch (IOException | RuntimeException broken) {
        return MALFORMED;
      }
      if (pass.hasInvalidText) {
        // The first field of the record counts, not that of the datum.
        type.judge(record, pass);
      }
      return pass.invalid == null ? document(record, null, null) : document(null, "invalid_utf8", pass.invalid.path);
    }

    private Object read(Pass pass) throws IOException {
      if (resolver == null) {
        return type.read(bytes, pass);
      }
      resolver.configure(bytes);
      Object record = type.read(resolver, pass);
      resolver.drain();
      return record;
    }
  }

  private static Schema parsed(String text) {
    return new Schema.Parser().setValidateDefaults(false).parse(text);
  }

  private static InternalRow document(Object record, String reason, String field) {
    return new GenericInternalRow(
        new Object[] {record, UTF8String.fromString(reason), UTF8String.fromString(field)});
  }

  /** For plans. */
  @Override
  public String toString() {
    return "datum";
  }
}
