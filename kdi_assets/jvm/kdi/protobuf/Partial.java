package kdi.protobuf;

import java.util.LinkedHashSet;
import java.util.Set;

/** A message while it is read. */
final class Partial {
  /** By the place of the field; null where nothing was read. */
  final Object[] values;

  /** Numbers of the fields that the type lacks, in the order of the message; null if there are none. */
  Set<Integer> unknown;

  Partial(int fields) {
    values = new Object[fields];
  }

  void unknown(int number, Wire wire) {
    if (unknown == null) {
      unknown = new LinkedHashSet<>();
    }
    unknown.add(number);
    wire.anyUnknown = true;
  }
}
