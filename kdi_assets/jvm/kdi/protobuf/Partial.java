package kdi.protobuf;

import java.util.Set;
import java.util.TreeSet;

/** A message while it is read. */
final class Partial {
  /** By the place of the field; null where nothing was read. */
  final Object[] values;

  /** Numbers of the fields that the type lacks; null if there are none. */
  Set<Integer> unknown;

  Partial(int fields) {
    values = new Object[fields];
  }

  void unknown(int number, Wire wire) {
    if (unknown == null) {
      unknown = new TreeSet<>();
    }
    unknown.add(number);
    wire.anyUnknown = true;
  }
}
