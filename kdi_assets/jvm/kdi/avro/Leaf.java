package kdi.avro;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.avro.Schema;
import org.apache.avro.io.Decoder;
import org.apache.spark.unsafe.types.UTF8String;

/** A value without values inside. */
final class Leaf extends Type {
  enum Kind {
    BOOLEAN,
    INT,
    LONG,
    MILLIS,
    FLOAT,
    DOUBLE,
    BYTES,
    STRING,
    ENUM,
    FIXED
  }

  private final Kind kind;
  private final int size;
  private final UTF8String[] symbols;

  Leaf(Kind kind, Schema schema, String path, int rank) {
    super(path, rank);
    this.kind = kind;
    this.size = kind == Kind.FIXED ? schema.getFixedSize() : 0;
    this.symbols =
        kind == Kind.ENUM
            ? schema.getEnumSymbols().stream().map(UTF8String::fromString).toArray(UTF8String[]::new)
            : null;
  }

  @Override
  Object read(Decoder in, Pass pass) throws IOException {
    return switch (kind) {
      case BOOLEAN -> in.readBoolean();
      case INT -> in.readInt();
      case LONG -> in.readLong();
      case MILLIS -> Math.multiplyExact(in.readLong(), 1000L);
      case FLOAT -> in.readFloat();
      case DOUBLE -> in.readDouble();
      case BYTES -> bytes(in.readBytes(null));
      case STRING -> text(in, pass);
      case ENUM -> symbols[in.readEnum()];
      case FIXED -> {
        byte[] fixed = new byte[size];
        in.readFixed(fixed);
        yield fixed;
      }
    };
  }

  @Override
  void judge(Object value, Pass pass) {
    if (kind == Kind.STRING && value != null && !((UTF8String) value).isValid()) {
      pass.invalid(this);
    }
  }

  /** A text, checked in passing. */
  static UTF8String text(Decoder in, Pass pass) throws IOException {
    var read = in.readString(null);
    byte[] bytes = read.getBytes();
    int length = read.getByteLength();
    UTF8String text = UTF8String.fromBytes(bytes, 0, length);
    int bits = 0;
    for (int each = 0; each < length; each++) {
      bits |= bytes[each];
    }
    pass.hasInvalidText |= bits < 0 && !text.isValid();
    return text;
  }

  private static byte[] bytes(ByteBuffer read) {
    byte[] bytes = new byte[read.remaining()];
    read.get(bytes);
    return bytes;
  }
}
