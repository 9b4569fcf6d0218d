package kdi.protobuf;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Makes the types of a record from their description, which {@code kernel.py} writes. */
final class Types {
  private static final int INT64 = 3;
  private static final int INT32 = 5;

  private int messages;

  /**
   * @param path of a message there; its elements have it too
   */
  Type of(JsonNode described, String path) {
    return switch (described.get("kind").asText()) {
      case "scalar" -> new Scalar(described.get("type").asInt());
      case "enumeration" -> enumeration(described.get("names"));
      case "timestamp" -> pair(Message.Kind.TIMESTAMP, path);
      case "duration" -> pair(Message.Kind.DURATION, path);
      case "empty" -> message(Message.Kind.EMPTY, path);
      case "wrapper" ->
          message(Message.Kind.WRAPPER, path, plain(1, new Scalar(described.get("type").asInt()), path));
      default -> record(described.get("fields"), path);
    };
  }

  private Message record(JsonNode described, String path) {
    int rank = messages++;
    Field[] fields = new Field[described.size()];
    for (int place = 0; place < fields.length; place++) {
      fields[place] = field(described.get(place), path);
    }
    return new Message(Message.Kind.RECORD, fields, path, rank);
  }

  private Field field(JsonNode described, String around) {
    String name = described.get("name").asText();
    String path = around.isEmpty() ? name : around + "." + name;
    Field.Label label = Field.Label.valueOf(described.get("label").asText());
    JsonNode type = described.get("type");
    return new Field(
        path,
        described.get("number").asInt(),
        switch (label) {
          case ONE -> of(type, path);
          case REPEATED -> of(type, path + "[]");
          case MAP -> entry(described.get("key"), type, path + "[]");
        },
        label,
        described.get("can_be_absent").asBoolean(),
        described.get("required").asBoolean(),
        described.get("oneof").asInt());
  }

  private Message entry(JsonNode key, JsonNode value, String path) {
    return message(Message.Kind.ENTRY, path, plain(1, of(key, path), path), plain(2, of(value, path), path));
  }

  private Message pair(Message.Kind kind, String path) {
    return message(kind, path, plain(1, new Scalar(INT64), path), plain(2, new Scalar(INT32), path));
  }

  private Message message(Message.Kind kind, String path, Field... fields) {
    return new Message(kind, fields, path, messages++);
  }

  private static Field plain(int number, Type type, String path) {
    return new Field(path, number, type, Field.Label.ONE, false, false, -1);
  }

  private static Enumeration enumeration(JsonNode described) {
    Map<Integer, UTF8String> names = new HashMap<>();
    described.forEach(pair -> names.put(pair.get(0).asInt(), UTF8String.fromString(pair.get(1).asText())));
    return new Enumeration(names);
  }
}
