package kdi.protobuf;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** The first mistake in a message: a text that is no UTF-8, or a missing field. */
final class Mistakes {
  private Mistakes() {}

  /** Null if there is none. */
  static Problem in(Message type, Partial message) {
    for (int place = 0; place < type.fields.length; place++) {
      Problem found = in(type.fields[place], message.values[place]);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  private static Problem in(Field field, Object value) {
    if (value == null) {
      return field.isRequired ? new Problem("missing_field", field.path) : null;
    }
    if (field.label == Field.Label.ONE) {
      return in(field.type, value, field.path);
    }
    Problem found = null;
    List<Object> elements = value instanceof Map ? entriesOf(field, value) : Field.asList(value);
    for (Iterator<Object> each = elements.iterator(); found == null && each.hasNext(); ) {
      found = in(field.type, each.next(), field.path + "[]");
    }
    return found;
  }

  private static List<Object> entriesOf(Field field, Object map) {
    List<Object> entries = new ArrayList<>();
    Field.asMap(map)
        .forEach(
            (key, value) -> {
              Partial entry = ((Message) field.type).empty();
              entry.values[0] = key;
              entry.values[1] = value;
              entries.add(entry);
            });
    return entries;
  }

  private static Problem in(Type type, Object value, String path) {
    if (type instanceof Scalar scalar) {
      return !scalar.isText() || ((UTF8String) value).isValid() ? null : new Problem("invalid_utf8", path);
    }
    if (!(type instanceof Message message)) {
      return null;
    }
    Partial read = (Partial) value;
    if (message.kind == Message.Kind.ENTRY || message.kind == Message.Kind.WRAPPER) {
      return inParts(message, read, path);
    }
    return in(message, read);
  }

  /** The parts of an entry, or the wrapped value, have the path of the whole. */
  private static Problem inParts(Message message, Partial read, String path) {
    Problem found = null;
    for (int place = 0; found == null && place < message.fields.length; place++) {
      Type type = message.fields[place].type;
      Object value = read.values[place];
      if (value == null && type instanceof Message absent) {
        value = absent.empty(); // an entry without a value has an empty message
      }
      found = value == null ? null : in(type, value, path);
    }
    return found;
  }

  /** Reason and field; an empty field stands for the whole message. */
  record Problem(String reason, String field) {}

}
