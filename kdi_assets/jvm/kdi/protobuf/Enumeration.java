package kdi.protobuf;

import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** An enumeration, of either syntax: a number without a name is written as that number. */
final class Enumeration extends Type {
  private final Map<Integer, UTF8String> names;

  Enumeration(Map<Integer, UTF8String> names) {
    super(Wire.VARINT);
    this.names = names;
    this.absent = named(0);
  }

  @Override
  Object read(Wire wire, Object before) throws Wire.Refused {
    return named((int) wire.varint());
  }

  private UTF8String named(int number) {
    UTF8String name = names.get(number);
    return name == null ? UTF8String.fromString(Integer.toString(number)) : name;
  }
}
