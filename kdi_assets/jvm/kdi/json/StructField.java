package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** An object with declared fields; of a repeated name the last value counts. */
final class StructField extends Field {
  private static final int REMEMBERED = 256;
  private static final int MOST_CHARACTERS = 120;

  final String[] names;
  final Field[] fields;
  private final Map<String, Integer> numbers = new HashMap<>();
  /** Paths of unknown fields by name, which nearly all messages repeat; a decoder belongs to one task. */
  private final Map<String, UTF8String> unknown = new HashMap<>();
  private final Problem noObject;
  private final boolean salvageable;
  private String place = "";

  /**
   * @param salvageable whether single fields can be left out; not inside arrays and maps
   */
  StructField(String path, Problem missing, Problem noObject, String[] names, Field[] fields, boolean salvageable) {
    super(path, missing);
    this.noObject = noObject;
    this.names = names;
    this.fields = fields;
    this.salvageable = salvageable;
    for (int number = 0; number < names.length; number++) {
      numbers.put(names[number], number);
    }
  }

  @Override
  Object read(JsonParser parser, Pass pass) throws IOException {
    if (parser.currentToken() != JsonToken.START_OBJECT) {
      parser.skipChildren();
      return pass.misfit(noObject);
    }
    Object[] values = new Object[fields.length];
    Problem[] problems = null;
    int[][] places = null;
    int next = 0;
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      String name = parser.currentName();
      int number = numberOf(name, next);
      JsonToken token = parser.nextToken();
      if (number < 0) {
        pass.unknown(unknown(name), token == JsonToken.VALUE_NULL);
        parser.skipChildren();
        continue;
      }
      next = number + 1;
      if (values[number] != null || problems != null && problems[number] != null) {
        pass.repeats = true;
        if (pass.salvaging && salvageable) {
          pass.forgetLeftOut(Unknown.placeOf(place, name));
        }
      }
      int start = pass.salvaging ? (int) parser.currentTokenLocation().getByteOffset() : 0;
      Object value = token == JsonToken.VALUE_NULL ? null : fields[number].read(parser, pass);
      if (value == MISFIT) {
        if (problems == null) {
          problems = new Problem[fields.length];
          places = new int[fields.length][];
        }
        problems[number] = pass.problem;
        parser.finishToken();
        places[number] = new int[] {start, (int) parser.currentLocation().getByteOffset()};
        value = null;
      } else if (problems != null) {
        problems[number] = null;
      }
      values[number] = value;
    }
    if (pass.salvaging && salvageable && problems != null) {
      leaveOut(problems, places, pass);
      problems = null;
    }
    Problem found = null;
    for (int each = 0; each < fields.length; each++) {
      if (problems != null && problems[each] != null) {
        found = Problem.first(found, problems[each]);
      } else if (values[each] == null && fields[each].missing != null) {
        found = Problem.first(found, fields[each].missing);
      }
    }
    if (found == null) {
      return new GenericInternalRow(values);
    }
    if (pass.salvaging && salvageable) { // leaving out other values does not help
      pass.unsalvageable(place);
    }
    return pass.misfit(found);
  }

  @Override
  boolean hasNames() {
    return true;
  }

  /** Say at which place of a message it is; not inside arrays and maps, where it has many. */
  void setPlace(String place) {
    this.place = place;
    for (int number = 0; number < fields.length; number++) {
      if (fields[number] instanceof StructField) {
        ((StructField) fields[number]).setPlace(Unknown.placeOf(place, names[number]));
      }
    }
  }

  /** The number of a field, or -1; names usually come in the order of the fields. */
  int numberOf(String name, int guess) {
    if (guess < names.length && names[guess].equals(name)) {
      return guess;
    }
    Integer number = numbers.get(name);
    return number == null ? -1 : number;
  }

  private UTF8String unknown(String name) {
    UTF8String found = unknown.get(name);
    if (found == null) {
      found = UTF8String.fromString(below(path, name));
      if (unknown.size() < REMEMBERED && name.length() <= MOST_CHARACTERS) {
        unknown.put(name, found);
      }
    }
    return found;
  }

  static String below(String path, String name) {
    return path.isEmpty() ? name : path + "." + name;
  }

  private void leaveOut(Problem[] problems, int[][] places, Pass pass) throws IOException {
    for (int each = 0; each < fields.length; each++) {
      if (problems[each] != null) {
        pass.leftOut(fields[each].path, Unknown.placeOf(place, names[each]), places[each][0], places[each][1]);
      }
    }
  }
}
