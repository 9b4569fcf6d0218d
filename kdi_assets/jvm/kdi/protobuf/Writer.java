package kdi.protobuf;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A schema that messages were written with. */
final class Writer implements Serializable {
  /** Paths of the fields that it names and the record lacks. */
  final Set<String> named = new HashSet<>();

  /** By the path of a message index, whether it is the message that is decoded. */
  private final Map<List<Integer>, Boolean> messages = new HashMap<>();

  /** The message as this schema has it; null if it has none of that name. */
  private final Message own;

  Writer(JsonNode described) {
    described.get("named").forEach(path -> named.add(path.asText()));
    described.get("messages").forEach(pair -> messages.put(places(pair.get(0)), pair.get(1).asBoolean()));
    JsonNode record = described.get("record");
    own = record.isNull() ? null : (Message) new Types().of(record, "");
  }

  /** Why a message is not decoded that its index places here; null if it is. */
  String refusal(List<Integer> path) {
    Boolean isDecoded = messages.get(path);
    return isDecoded == null ? "bad_message_index" : isDecoded ? null : "other_message";
  }

  /** Whether this schema has all fields of a message; one that does not conform to it may have others. */
  boolean lacksNone(byte[] payload, int from) {
    Wire wire = new Wire(payload, from, true);
    Partial message = own.empty();
    try {
      own.readFields(wire, message);
    } catch (Wire.Refused refused) {
      return false;
    }
    return !wire.anyUnknown || Unknown.paths(own, message, Set.of()) == null;
  }

  private static List<Integer> places(JsonNode described) {
    List<Integer> places = new ArrayList<>();
    described.forEach(place -> places.add(place.asInt()));
    return places;
  }
}
