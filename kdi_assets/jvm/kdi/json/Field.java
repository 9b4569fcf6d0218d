package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.io.Serializable;

/** A place in the record: a field, the elements of an array, or the values of a map. */
abstract class Field implements Serializable {
  /** Stands for a value that does not fit the type. */
  static final Object MISFIT = new Object();

  /** Its path, as in dead letters: {@code a.b[].c}, with {@code []} for indexes and keys; empty for the record. */
  final String path;

  /** The problem if it is absent or null; null if it may be absent. */
  final Problem missing;

  Field(String path, Problem missing) {
    this.path = path;
    this.missing = missing;
  }

  /**
   * Read the value at the current token, to its end.
   *
   * @return the value for Spark's rows, or {@code MISFIT} and {@code pass.problem}
   */
  abstract Object read(JsonParser parser, Pass pass) throws IOException;

  /** Whether a value may have names that the type lacks. */
  boolean hasNames() {
    return false;
  }
}
