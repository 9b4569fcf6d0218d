package kdi.avro;

import java.io.IOException;
import org.apache.avro.Schema;
import org.apache.avro.io.Decoder;
import org.apache.avro.io.ResolvingDecoder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/** A record. */
final class Struct extends Type {
  private final Type[] fields;

  Struct(Type[] fields, String path, int rank) {
    super(path, rank);
    this.fields = fields;
  }

  @Override
  Object read(Decoder in, Pass pass) throws IOException {
    Object[] values = new Object[fields.length];
    if (in instanceof ResolvingDecoder resolver) {
      for (Schema.Field field : resolver.readFieldOrder()) {
        values[field.pos()] = fields[field.pos()].read(in, pass);
      }
    } else {
      for (int place = 0; place < fields.length; place++) {
        values[place] = fields[place].read(in, pass);
      }
    }
    return new GenericInternalRow(values);
  }

  @Override
  void judge(Object value, Pass pass) {
    for (int place = 0; value != null && place < fields.length; place++) {
      fields[place].judge(((InternalRow) value).get(place, null), pass);
    }
  }
}
