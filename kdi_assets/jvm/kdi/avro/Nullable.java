package kdi.avro;

import java.io.IOException;
import org.apache.avro.io.Decoder;

/** A union of null and one other type. */
final class Nullable extends Type {
  private final Type type;
  private final int placeOfNull;

  Nullable(Type type, int placeOfNull) {
    super(type.path, type.rank);
    this.type = type;
    this.placeOfNull = placeOfNull;
  }

  @Override
  Object read(Decoder in, Pass pass) throws IOException {
    int branch = in.readIndex();
    if (branch < 0 || branch > 1) {
      throw new IOException("no such branch");
    }
    if (branch == placeOfNull) {
      in.readNull();
      return null;
    }
    return type.read(in, pass);
  }

  @Override
  void judge(Object value, Pass pass) {
    type.judge(value, pass);
  }
}
