package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** An object with any keys and one type of values; of a repeated key the last value counts. */
final class MapField extends Field {
  final Field value;
  private final Problem noObject;
  private final Problem noText;

  MapField(String path, Problem missing, Problem noObject, Problem noText, Field value) {
    super(path, missing);
    this.noObject = noObject;
    this.noText = noText;
    this.value = value;
  }

  @Override
  Object read(JsonParser parser, Pass pass) throws IOException {
    if (parser.currentToken() != JsonToken.START_OBJECT) {
      parser.skipChildren();
      return pass.misfit(noObject);
    }
    Map<UTF8String, Object> values = new LinkedHashMap<>();
    Problem found = null;
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      UTF8String key = Text.encoded(parser.currentName());
      if (key == null) {
        found = Problem.first(found, noText);
      }
      Object read = parser.nextToken() == JsonToken.VALUE_NULL ? null : value.read(parser, pass);
      pass.repeats |= values.put(key, read == MISFIT ? pass.problem : read) != null;
    }
    for (Object each : values.values()) {
      if (each instanceof Problem) {
        found = Problem.first(found, (Problem) each);
      } else if (each == null) {
        found = Problem.first(found, value.missing);
      }
    }
    if (found != null) {
      return pass.misfit(found);
    }
    Object[] keys = values.keySet().toArray();
    return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values.values().toArray()));
  }

  @Override
  boolean hasNames() {
    return true;
  }
}
