package kdi.avro;

import java.io.IOException;
import org.apache.avro.io.Decoder;

/** The type of a value at a place of the record. */
abstract class Type {
  /** As in dead letters: with {@code []} for elements, keys and values; empty for the record. */
  final String path;

  /** The place among all of the record. */
  final int rank;

  Type(String path, int rank) {
    this.path = path;
    this.rank = rank;
  }

  /** Read a value for Spark's rows. */
  abstract Object read(Decoder in, Pass pass) throws IOException;

  /** Find texts that are no UTF-8 in a value that was read; null has none. */
  void judge(Object value, Pass pass) {}
}
