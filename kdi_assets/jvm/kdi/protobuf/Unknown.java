package kdi.protobuf;

import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** The paths of the fields of a message that no type names, e.g. {@code items[].#7}. */
final class Unknown {
  /** As in {@code compatible.py}. */
  private static final int MOST_PATHS = 100;

  private Unknown() {}

  /**
   * Null if there are none.
   *
   * @param named paths that a schema names after all
   */
  static ArrayData paths(Message type, Partial message, Set<String> named) {
    Set<String> found = new LinkedHashSet<>();
    look(type, message, found);
    found.removeAll(named);
    Object[] paths = found.stream().limit(MOST_PATHS).map(UTF8String::fromString).toArray();
    return paths.length == 0 ? null : new GenericArrayData(paths);
  }

  private static void look(Message type, Partial message, Set<String> found) {
    if (message.unknown != null) {
      String within = type.path.isEmpty() ? "" : type.path + ".";
      message.unknown.forEach(number -> found.add(within + "#" + number));
    }
    for (int place : type.inOrderOfNumbers) {
      Field field = type.fields[place];
      Object value = message.values[place];
      if (value == null || !(field.type instanceof Message inner)) {
        continue;
      }
      if (field.label == Field.Label.ONE) {
        look(inner, (Partial) value, found);
      } else if (field.label == Field.Label.REPEATED) {
        lookIn(inner, Field.asList(value), found);
      } else if (inner.fields[1].type instanceof Message values) {
        lookIn(values, Field.asMap(value).values(), found);
      }
    }
  }

  private static void lookIn(Message type, Collection<Object> messages, Set<String> found) {
    messages.forEach(each -> look(type, (Partial) each, found));
  }
}
