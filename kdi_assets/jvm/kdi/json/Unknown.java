package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** The fields of a message that its record lacks: path, place in the message, and value. */
final class Unknown {
  private Unknown() {}

  /** The unknown fields in the value at the current token. */
  static List<InternalRow> of(JsonParser parser, Field declared) throws IOException {
    return of(parser, declared, "");
  }

  /** One entry; reads the value at the current token. */
  static InternalRow entry(UTF8String path, UTF8String place, JsonParser parser) throws IOException {
    Variant value = VariantBuilder.parseJson(parser, true);
    return new GenericInternalRow(new Object[] {path, place, new VariantVal(value.getValue(), value.getMetadata())});
  }

  private static List<InternalRow> of(JsonParser parser, Field declared, String place) throws IOException {
    List<InternalRow> found = new ArrayList<>();
    if (!declared.hasNames() || !parser.currentToken().isStructStart()) {
      parser.skipChildren();
    } else if (declared instanceof StructField) {
      found = inStruct(parser, (StructField) declared, place);
    } else if (declared instanceof MapField) {
      found = inMap(parser, (MapField) declared, place);
    } else {
      for (int index = 0; parser.nextToken() != JsonToken.END_ARRAY; index++) {
        found.addAll(of(parser, ((ArrayField) declared).element, place + "[" + index + "]"));
      }
    }
    return found;
  }

  private static List<InternalRow> inStruct(JsonParser parser, StructField declared, String place) throws IOException {
    Map<String, InternalRow> found = new TreeMap<>();
    List<List<InternalRow>> below = new ArrayList<>(Collections.nCopies(declared.fields.length, List.of()));
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String name = parser.currentName();
      int number = declared.numberOf(name, 0);
      boolean isNull = parser.nextToken() == JsonToken.VALUE_NULL;
      if (number >= 0) {
        below.set(number, of(parser, declared.fields[number], StructField.below(place, name)));
      } else if (isNull) {
        found.remove(name);
      } else {
        UTF8String path = UTF8String.fromString(StructField.below(declared.path, name));
        found.put(name, entry(path, UTF8String.fromString(placeOf(place, name)), parser));
      }
    }
    List<InternalRow> all = new ArrayList<>(found.values());
    below.forEach(all::addAll);
    return all;
  }

  private static List<InternalRow> inMap(JsonParser parser, MapField declared, String place) throws IOException {
    Map<String, List<InternalRow>> found = new TreeMap<>();
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String key = parser.currentName();
      parser.nextToken();
      found.put(key, of(parser, declared.value, bracketed(place, key)));
    }
    List<InternalRow> all = new ArrayList<>();
    found.values().forEach(all::addAll);
    return all;
  }

  /** In brackets if the name looks like several steps, so that places are unique. */
  private static String placeOf(String place, String name) {
    boolean plain = !name.isEmpty() && name.indexOf('.') < 0 && name.indexOf('[') < 0;
    return plain ? StructField.below(place, name) : bracketed(place, name);
  }

  private static String bracketed(String place, String key) {
    return place + "[\"" + new String(JsonStringEncoder.getInstance().quoteAsString(key)) + "\"]";
  }
}
