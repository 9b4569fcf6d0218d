package kdi.protobuf;

import java.io.Serializable;

/** The type of a value at a place of the record. */
abstract class Type implements Serializable {
  /** How its values are encoded, of {@code Wire}. */
  final int encoding;

  /** The value of an absent field that cannot be null. */
  Object absent;

  Type(int encoding) {
    this.encoding = encoding;
  }

  /**
   * Read a value.
   *
   * @param before the field's value so far, which a message is merged into; null if there is none
   */
  abstract Object read(Wire wire, Object before) throws Wire.Refused;

  /** The value for Spark's rows, of one that was read. */
  Object finished(Object read, Pass pass) throws Wire.Refused {
    return read;
  }
}
