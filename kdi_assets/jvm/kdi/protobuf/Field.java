package kdi.protobuf;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/** A field of a message: one value, a list, or a map, whose elements are messages of key and value. */
final class Field implements Serializable {
  enum Label {
    ONE,
    REPEATED,
    MAP
  }

  final String path;
  final int number;
  final Type type;
  final Label label;
  final boolean canBeAbsent;
  final boolean isRequired;

  /** Of the fields of a oneof it has the same number; -1 outside of them. */
  final int oneof;

  Field(String path, int number, Type type, Label label, boolean canBeAbsent, boolean isRequired, int oneof) {
    this.path = path;
    this.number = number;
    this.type = type;
    this.label = label;
    this.canBeAbsent = canBeAbsent;
    this.isRequired = isRequired;
    this.oneof = oneof;
  }

  /** Whether a value with this encoding is one of the field; otherwise it is an unknown field. */
  boolean takes(int encoding) {
    return encoding == type.encoding || label == Label.REPEATED && encoding == Wire.BYTES;
  }

  /**
   * Read a value, or a packed list of some.
   *
   * @param before the field's value so far; null if there is none
   * @return the field's value; null if the value is an entry that is no field of the message
   */
  Object read(Wire wire, Object before, int encoding) throws Wire.Refused {
    if (label == Label.ONE) {
      return type.read(wire, before);
    }
    if (label == Label.MAP && wire.checks) {
      return withEntry(before, (Partial) type.read(wire, null));
    }
    List<Object> elements = before == null ? new ArrayList<>() : asList(before);
    if (encoding == type.encoding) {
      elements.add(type.read(wire, null));
      return elements;
    }
    int around = wire.enter();
    while (wire.at < wire.end) {
      elements.add(type.read(wire, null));
    }
    wire.leave(around);
    return elements;
  }

  /** Protobuf takes an entry with other fields than key and value for an unknown field of the message. */
  private Object withEntry(Object before, Partial entry) {
    if (entry.unknown != null) {
      return null;
    }
    Map<Object, Object> entries = before == null ? new TreeMap<>() : asMap(before);
    Field[] parts = ((Message) type).fields;
    Object key = entry.values[0];
    Object value = entry.values[1];
    if (value == null) {
      value = parts[1].type instanceof Message message ? message.empty() : parts[1].type.absent;
    }
    entries.put(key == null ? parts[0].type.absent : key, value);
    return entries;
  }

  /** The value for Spark's rows, of what was read. */
  Object finished(Object read, Pass pass) throws Wire.Refused {
    if (label == Label.MAP) {
      return finishedMap(read == null ? Map.of() : asMap(read), pass);
    }
    if (label == Label.REPEATED) {
      return finishedList(read == null ? List.of() : asList(read), type, pass);
    }
    if (read != null) {
      return type.finished(read, pass);
    }
    if (isRequired) {
      throw Wire.Refused.MISSING_FIELD;
    }
    return canBeAbsent ? null : type.absent;
  }

  private static ArrayData finishedList(Iterable<Object> read, Type type, Pass pass) throws Wire.Refused {
    List<Object> elements = new ArrayList<>();
    for (Object each : read) {
      elements.add(type.finished(each, pass));
    }
    return new GenericArrayData(elements.toArray());
  }

  private ArrayBasedMapData finishedMap(Map<Object, Object> read, Pass pass) throws Wire.Refused {
    Field[] parts = ((Message) type).fields;
    ArrayData keys = finishedList(read.keySet(), parts[0].type, pass);
    return new ArrayBasedMapData(keys, finishedList(read.values(), parts[1].type, pass));
  }

  @SuppressWarnings("unchecked")
  static List<Object> asList(Object value) {
    return (List<Object>) value;
  }

  @SuppressWarnings("unchecked")
  static Map<Object, Object> asMap(Object value) {
    return (Map<Object, Object>) value;
  }
}
