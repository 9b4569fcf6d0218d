package kdi.avro;

import java.util.List;
import org.apache.avro.Schema;

/** Makes the types of a record from the reader's schema. */
final class Types {
  private int ranks;

  /**
   * Null for a type that only Spark's own reader makes a column of: some logical types, most unions, maps, whose entries
   * have an order of Java there, and texts of which a schema says that bytes that are no UTF-8 are replaced.
   */
  Type of(Schema schema, String path) {
    int rank = ranks++;
    return switch (schema.getType()) {
      case RECORD -> struct(schema, path, rank);
      case ARRAY -> {
        Type item = of(schema.getElementType(), path + "[]");
        yield item == null ? null : new Items(item, path, rank);
      }
      case MAP -> null;
      case UNION -> nullable(schema.getTypes(), path);
      default -> leaf(schema, path, rank);
    };
  }

  private Type struct(Schema schema, String path, int rank) {
    List<Schema.Field> declared = schema.getFields();
    Type[] fields = new Type[declared.size()];
    for (Schema.Field field : declared) {
      Type type = of(field.schema(), path.isEmpty() ? field.name() : path + "." + field.name());
      if (type == null) {
        return null;
      }
      fields[field.pos()] = type;
    }
    // A record without fields has no bytes, so an array of them could be endless.
    return fields.length == 0 ? null : new Struct(fields, path, rank);
  }

  private Type nullable(List<Schema> branches, String path) {
    int placeOfNull = branches.size() == 2 && branches.get(1).getType() == Schema.Type.NULL ? 1 : 0;
    if (branches.size() != 2 || branches.get(placeOfNull).getType() != Schema.Type.NULL) {
      return null;
    }
    Type type = of(branches.get(1 - placeOfNull), path);
    return type == null ? null : new Nullable(type, placeOfNull);
  }

  private static Type leaf(Schema schema, String path, int rank) {
    if ("String".equals(schema.getProp("avro.java.string"))) {
      return null;
    }
    String logical = schema.getProp("logicalType");
    Leaf.Kind kind =
        switch ((logical == null ? "" : logical + " ") + schema.getType().getName()) {
          case "boolean" -> Leaf.Kind.BOOLEAN;
          case "int", "date int" -> Leaf.Kind.INT;
          case "long", "timestamp-micros long", "local-timestamp-micros long" -> Leaf.Kind.LONG;
          case "timestamp-millis long", "local-timestamp-millis long" -> Leaf.Kind.MILLIS;
          case "float" -> Leaf.Kind.FLOAT;
          case "double" -> Leaf.Kind.DOUBLE;
          case "bytes" -> Leaf.Kind.BYTES;
          case "string", "uuid string" -> Leaf.Kind.STRING;
          case "enum" -> Leaf.Kind.ENUM;
          case "fixed" -> schema.getFixedSize() > 0 ? Leaf.Kind.FIXED : null;
          default -> null;
        };
    return kind == null ? null : new Leaf(kind, schema, path, rank);
  }
}
