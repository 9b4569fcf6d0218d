package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonStreamContext;
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
  private final byte[] payload;
  private final JsonParser parser;

  /** Makes the values, from the same parser; null if there are to be none. */
  private final Watched watched;

  private Unknown(byte[] payload, JsonParser parser, boolean withValues) {
    this.payload = payload;
    this.parser = parser;
    this.watched = withValues ? new Watched(parser) : null;
  }

  /**
   * The unknown fields of a message.
   *
   * @param withValues otherwise all values are null
   */
  static List<InternalRow> of(byte[] payload, StructField root, boolean withValues) throws IOException {
    try (JsonParser parser = JsonDecoder.parser(payload, 0, payload.length)) {
      parser.nextToken();
      return new Unknown(payload, parser, withValues).in(root, "");
    }
  }

  static InternalRow entry(UTF8String path, UTF8String place, VariantVal value) {
    return new GenericInternalRow(new Object[] {path, place, value});
  }

  /** The JSON text {@code [from, to)}, for a value that a variant would change. */
  static VariantVal text(byte[] payload, int from, int to) {
    VariantBuilder builder = new VariantBuilder(false);
    builder.appendString(UTF8String.fromBytes(payload, from, to - from).toString());
    Variant text = builder.result();
    return new VariantVal(text.getValue(), text.getMetadata());
  }

  /** The place of a field: in brackets if the name looks like several steps, so that places are unique. */
  static String placeOf(String place, String name) {
    boolean plain = !name.isEmpty() && name.indexOf('.') < 0 && name.indexOf('[') < 0;
    return plain ? StructField.below(place, name) : bracketed(place, name);
  }

  /** The unknown fields in the value at the current token; none in a value of another kind than is declared. */
  private List<InternalRow> in(Field declared, String place) throws IOException {
    JsonToken token = parser.currentToken();
    if (token == JsonToken.START_OBJECT && declared instanceof StructField) {
      return inStruct((StructField) declared, place);
    }
    if (token == JsonToken.START_OBJECT && declared instanceof MapField) {
      return inMap((MapField) declared, place);
    }
    if (token == JsonToken.START_ARRAY && declared instanceof ArrayField && declared.hasNames()) {
      return inArray((ArrayField) declared, place);
    }
    return skipped();
  }

  private List<InternalRow> skipped() throws IOException {
    parser.skipChildren();
    return List.of();
  }

  private List<InternalRow> inStruct(StructField declared, String place) throws IOException {
    Map<String, InternalRow> found = new TreeMap<>();
    List<List<InternalRow>> below = new ArrayList<>(Collections.nCopies(declared.fields.length, List.of()));
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String name = parser.currentName();
      int number = declared.numberOf(name, 0);
      boolean isNull = parser.nextToken() == JsonToken.VALUE_NULL;
      if (number >= 0) {
        Field field = declared.fields[number];
        below.set(number, field.hasNames() ? in(field, placeOf(place, name)) : skipped());
      } else if (isNull) {
        found.remove(name);
      } else {
        UTF8String path = UTF8String.fromString(StructField.below(declared.path, name));
        found.put(name, entry(path, UTF8String.fromString(placeOf(place, name)), value()));
      }
    }
    List<InternalRow> all = new ArrayList<>(found.values());
    below.forEach(all::addAll);
    return all;
  }

  private List<InternalRow> inMap(MapField declared, String place) throws IOException {
    Map<String, List<InternalRow>> found = new TreeMap<>();
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String key = parser.currentName();
      parser.nextToken();
      found.put(key, in(declared.value, bracketed(place, key)));
    }
    List<InternalRow> all = new ArrayList<>();
    found.values().forEach(all::addAll);
    return all;
  }

  private List<InternalRow> inArray(ArrayField declared, String place) throws IOException {
    List<InternalRow> all = new ArrayList<>();
    for (int index = 0; parser.nextToken() != JsonToken.END_ARRAY; index++) {
      all.addAll(in(declared.element, place + "[" + index + "]"));
    }
    return all;
  }

  /** The value at the current token, read to its end. */
  private VariantVal value() throws IOException {
    if (watched == null) {
      parser.skipChildren();
      return null;
    }
    int from = (int) parser.currentTokenLocation().getByteOffset();
    JsonStreamContext around = parser.getParsingContext();
    if (parser.currentToken().isStructStart()) {
      around = around.getParent();
    }
    VariantVal value = watched.variant();
    if (value != null) {
      return value;
    }
    while (parser.getParsingContext() != around) {
      parser.nextToken();
    }
    parser.finishToken();
    return text(payload, from, (int) parser.currentLocation().getByteOffset());
  }

  private static String bracketed(String place, String key) {
    return place + "[\"" + new String(JsonStringEncoder.getInstance().quoteAsString(key)) + "\"]";
  }
}
