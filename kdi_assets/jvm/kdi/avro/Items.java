package kdi.avro;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.io.Decoder;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/** An array. */
final class Items extends Type {
  private final Type item;

  Items(Type item, String path, int rank) {
    super(path, rank);
    this.item = item;
  }

  @Override
  Object read(Decoder in, Pass pass) throws IOException {
    List<Object> items = new ArrayList<>();
    for (long left = in.readArrayStart(); left > 0; left = in.arrayNext()) {
      for (; left > 0; left--) {
        items.add(item.read(in, pass));
      }
    }
    return new GenericArrayData(items.toArray());
  }

  @Override
  void judge(Object value, Pass pass) {
    if (value != null) {
      for (Object each : ((GenericArrayData) value).array()) {
        item.judge(each, pass);
      }
    }
  }
}
