package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/** An array of one element type. */
final class ArrayField extends Field {
  final Field element;
  private final Problem noArray;

  ArrayField(String path, Problem missing, Problem noArray, Field element) {
    super(path, missing);
    this.noArray = noArray;
    this.element = element;
  }

  @Override
  Object read(JsonParser parser, Pass pass) throws IOException {
    if (parser.currentToken() != JsonToken.START_ARRAY) {
      parser.skipChildren();
      return pass.misfit(noArray);
    }
    List<Object> values = new ArrayList<>();
    Problem found = null;
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      Object value = parser.currentToken() == JsonToken.VALUE_NULL ? null : element.read(parser, pass);
      if (value == MISFIT) {
        found = Problem.first(found, pass.problem);
      } else if (value == null) {
        found = Problem.first(found, element.missing);
      }
      values.add(value);
    }
    return found == null ? new GenericArrayData(values.toArray()) : pass.misfit(found);
  }

  @Override
  boolean hasNames() {
    return element.hasNames();
  }
}
