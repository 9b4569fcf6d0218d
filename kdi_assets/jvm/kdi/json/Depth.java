package kdi.json;

import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantUtil;
import org.apache.spark.unsafe.types.VariantVal;

/** How deep objects and arrays lie in each other; what walks a value by recursion may end its thread. */
public final class Depth {
  private Depth() {}

  /** Whether a value has at most so many levels of objects and arrays. */
  public static boolean within(VariantVal value, int most) {
    return within(new Variant(value.getValue(), value.getMetadata()), most);
  }

  private static boolean within(Variant value, int most) {
    VariantUtil.Type type = value.getType();
    boolean isObject = type == VariantUtil.Type.OBJECT;
    if (!isObject && type != VariantUtil.Type.ARRAY) {
      return true;
    }
    if (most == 0) {
      return false;
    }
    int parts = isObject ? value.objectSize() : value.arraySize();
    for (int n = 0; n < parts; n++) {
      Variant part = isObject ? value.getFieldAtIndex(n).value : value.getElementAtIndex(n);
      if (!within(part, most - 1)) {
        return false;
      }
    }
    return true;
  }
}
