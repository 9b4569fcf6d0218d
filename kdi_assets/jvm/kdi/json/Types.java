package kdi.json;

import java.util.function.Function;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VariantType;

/**
 * Makes the fields of a record from its type, and ranks their problems.
 *
 * <p>First come values of the wrong JSON kind, in the order of the fields, with the path of the outermost field that is
 * no object. Then missing fields, and values that the type cannot hold, with their exact path.
 */
final class Types {
  /** Metadata of a field that takes any value, as text. */
  private static final String TEXT = "kdi.text";

  private int kindRank;
  private int valueRank = 1 << 20;

  StructField root(StructType record) {
    StructField root = struct(record, "", "", null, true);
    root.setPlace("");
    return root;
  }

  private StructField struct(StructType type, String path, String leaf, Problem missing, boolean salvageable) {
    int count = type.fields().length;
    String[] names = type.fieldNames();
    Field[] fields = new Field[count];
    Problem noObject = null;
    for (int number = 0; number < count; number++) {
      var declared = type.fields()[number];
      String here = StructField.below(path, names[number]);
      int before = kindRank;
      fields[number] =
          declared.metadata().contains(TEXT)
              ? text(here, declared.nullable())
              : field(declared.dataType(), here, leaf, declared.nullable());
      if (noObject == null) {
        noObject = new Problem("wrong_type", leaf.isEmpty() ? firstLeaf(declared.dataType(), here) : leaf, before + 1);
      }
    }
    if (noObject == null) {
      noObject = new Problem("wrong_type", leaf.isEmpty() ? path : leaf, ++kindRank);
    }
    return new StructField(path, missing, noObject, names, fields, salvageable);
  }

  private Field text(String path, boolean nullable) {
    Problem missing = nullable ? null : new Problem("missing_field", path, ++valueRank);
    return new Leaves.Texts(path, missing, new Leaves.Problems(null, null, null, new Problem("invalid_utf8", path, ++valueRank)));
  }

  private static String firstLeaf(DataType type, String path) {
    if (type instanceof StructType && ((StructType) type).fields().length > 0) {
      var inner = ((StructType) type).fields()[0];
      return firstLeaf(inner.dataType(), StructField.below(path, inner.name()));
    }
    return path;
  }

  /**
   * @param leaf path of the outermost field around it that is no object; empty if there is none
   */
  private Field field(DataType type, String path, String leaf, boolean nullable) {
    Problem missing = nullable ? null : new Problem("missing_field", path, ++valueRank);
    String named = leaf.isEmpty() ? path : leaf;
    if (type instanceof StructType) {
      return struct((StructType) type, path, leaf, missing, leaf.isEmpty());
    }
    if (type instanceof ArrayType) {
      Problem noArray = new Problem("wrong_type", named, ++kindRank);
      ArrayType array = (ArrayType) type;
      return new ArrayField(path, missing, noArray, field(array.elementType(), path + "[]", named, array.containsNull()));
    }
    if (type instanceof MapType) {
      Problem noObject = new Problem("wrong_type", named, ++kindRank);
      Problem noText = new Problem("invalid_utf8", path + "[]", ++valueRank);
      MapType map = (MapType) type;
      Field value = field(map.valueType(), path + "[]", named, map.valueContainsNull());
      return new MapField(path, missing, noObject, noText, value);
    }
    return leaf(type, path, named, missing);
  }

  private Field leaf(DataType type, String path, String named, Problem missing) {
    Function<String, Problem> kind = reason -> new Problem(reason, named, ++kindRank);
    Function<String, Problem> value = reason -> new Problem(reason, path, ++valueRank);
    if (type instanceof StringType) {
      var problems = new Leaves.Problems(null, value.apply("wrong_type"), null, value.apply("invalid_utf8"));
      return new Leaves.Strings(path, missing, problems);
    }
    if (type instanceof VariantType) {
      var problems = new Leaves.Problems(value.apply("out_of_range"), null, null, value.apply("invalid_utf8"));
      return new VariantField(path, missing, problems);
    }
    if (type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType) {
      var wrong = value.apply("wrong_type");
      var problems = new Leaves.Problems(value.apply("out_of_range"), wrong, value.apply("too_precise"), null);
      return new Leaves.Times(path, missing, problems, kindOf(type));
    }
    if (type instanceof DecimalType) {
      var outOfRange = kind.apply("out_of_range");
      var problems = new Leaves.Problems(outOfRange, kind.apply("wrong_type"), value.apply("too_precise"), null);
      return new Leaves.Decimals(path, missing, problems, (DecimalType) type);
    }
    if (type instanceof DoubleType || type instanceof FloatType) {
      var problems = new Leaves.Problems(value.apply("out_of_range"), kind.apply("wrong_type"), null, null);
      return new Leaves.Floats(path, missing, problems, type instanceof DoubleType);
    }
    var outOfRange = kind.apply("out_of_range");
    var problems = new Leaves.Problems(outOfRange, kind.apply("wrong_type"), null, null);
    if (type instanceof BooleanType) {
      return new Leaves.Booleans(path, missing, problems);
    }
    if (type instanceof BinaryType) {
      return new Leaves.Binaries(path, missing, problems);
    }
    return new Leaves.Integers(path, missing, problems, bytesOf(type));
  }

  private static Leaves.Times.Kind kindOf(DataType type) {
    if (type instanceof DateType) {
      return Leaves.Times.Kind.DATE;
    }
    return type instanceof TimestampType ? Leaves.Times.Kind.TIMESTAMP : Leaves.Times.Kind.TIMESTAMP_NTZ;
  }

  private static int bytesOf(DataType type) {
    if (type instanceof ByteType) {
      return 1;
    }
    if (type instanceof ShortType) {
      return 2;
    }
    if (type instanceof IntegerType) {
      return 4;
    }
    if (type instanceof LongType) {
      return 8;
    }
    throw new IllegalArgumentException("no field of JSON has the type " + type.sql());
  }
}
