package kdi.json;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** The paths of the unknown fields of a task's last message: the next one usually has the same, in the same order. */
final class UsualPaths implements Serializable {
  static final int MOST = 30;

  private UTF8String[] inOrder = new UTF8String[0];

  /** The same, sorted; null if there are none. */
  GenericArrayData sorted;

  void set(List<UTF8String> inOrder, GenericArrayData sorted) {
    if (inOrder.size() <= MOST) {
      this.inOrder = inOrder.toArray(new UTF8String[0]);
      this.sorted = sorted;
    }
  }

  int size() {
    return inOrder.length;
  }

  boolean isNext(int at, UTF8String path) {
    return at < inOrder.length && inOrder[at] == path;
  }

  List<UTF8String> first(int count) {
    return Arrays.asList(inOrder).subList(0, count);
  }
}
