package kdi.avro;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.avro.io.Decoder;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/** A map; of a repeated key the last value counts. */
final class Entries extends Type {
  private final Leaf key;
  private final Type value;

  Entries(Leaf key, Type value, String path, int rank) {
    super(path, rank);
    this.key = key;
    this.value = value;
  }

  @Override
  Object read(Decoder in, Pass pass) throws IOException {
    Map<Object, Object> entries = new LinkedHashMap<>();
    for (long left = in.readMapStart(); left > 0; left = in.mapNext()) {
      for (; left > 0; left--) {
        Object name = key.read(in, pass);
        entries.put(name, value.read(in, pass));
      }
    }
    return new ArrayBasedMapData(
        new GenericArrayData(entries.keySet().toArray()), new GenericArrayData(entries.values().toArray()));
  }

  @Override
  void judge(Object read, Pass pass) {
    if (read != null) {
      ArrayBasedMapData map = (ArrayBasedMapData) read;
      for (Object each : ((GenericArrayData) map.keyArray()).array()) {
        key.judge(each, pass);
      }
      for (Object each : ((GenericArrayData) map.valueArray()).array()) {
        value.judge(each, pass);
      }
    }
  }
}
