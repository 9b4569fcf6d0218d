package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.Serializable;

/** A place in the record: a field, or what the elements of an array or the values of a map have in common. */
abstract class Field implements Serializable {
  /** Instead of a value that does not suit the type. */
  static final Object MISFIT = new Object();

  /** As messages are told of it: {@code a.b[].c}, {@code []} for indexes and keys; empty at the top. */
  final String path;

  /** What is wrong if it is absent or null; null if it may be. */
  final Problem missing;

  Field(String path, Problem missing) {
    this.path = path;
    this.missing = missing;
  }

  /**
   * Read the value at the current token, to its end.
   *
   * @return as Spark's rows hold it, or {@code MISFIT} with {@code pass.problem}
   */
  abstract Object read(JsonParser parser, Pass pass) throws IOException;

  /** Whether something in it may have a name that its type has not. */
  boolean hasNames() {
    return false;
  }
}
