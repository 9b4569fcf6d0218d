package kdi.json;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** The state of one pass over a message, and what it found beside the record. */
final class Pass {
  final byte[] payload;

  /** Whether a field that does not fit its type becomes null, and its value a misfit. */
  final boolean salvaging;

  final List<InternalRow> misfits = new ArrayList<>();

  /** The problem of the last value, if that was {@code Field.MISFIT}. */
  Problem problem;

  /** The places of objects that no left out value makes a record of; null if there are none. */
  private Set<String> unsalvageable;

  /** Whether an object may repeat a name, so that {@code paths} may have too many. */
  boolean repeats;

  private final UsualPaths usual;

  /** How many unknown fields were the usual ones, from the first on. */
  private int asUsual;

  /** The paths of all unknown fields in the order of the message; null as long as they are the usual ones. */
  private List<UTF8String> paths;

  /** The same paths, once a null field was looked for among many; null before. */
  private Set<UTF8String> lookup;

  Pass(byte[] payload, boolean salvaging, UsualPaths usual) {
    this.payload = payload;
    this.salvaging = salvaging;
    this.usual = usual;
  }

  Object misfit(Problem found) {
    problem = found;
    return Field.MISFIT;
  }

  /**
   * Note a field that the record lacks.
   *
   * @param isNull whether it is null, which counts as absent; if the name is repeated, the last value counts
   */
  void unknown(UTF8String path, boolean isNull) {
    if (isNull) {
      repeats |= isNoted(path);
    } else if (paths == null && usual.isNext(asUsual, path)) {
      asUsual++;
    } else {
      ordered().add(path);
      if (lookup != null) {
        lookup.add(path);
      }
    }
  }

  private boolean isNoted(UTF8String path) {
    if (paths == null) {
      return usual.first(asUsual).contains(path);
    }
    if (paths.size() <= UsualPaths.MOST) {
      return paths.contains(path);
    }
    if (lookup == null) {
      lookup = new HashSet<>(paths);
    }
    return lookup.contains(path);
  }

  private List<UTF8String> ordered() {
    if (paths == null) {
      paths = new ArrayList<>(usual.first(asUsual));
    }
    return paths;
  }

  /** Note a value that is left out: the bytes {@code [from, to)} of the payload. */
  void leftOut(String path, String place, int from, int to) throws IOException {
    try (Watched parser = new Watched(JsonDecoder.parser(payload, from, to))) {
      parser.nextToken();
      VariantVal held = parser.variant();
      VariantVal value = held == null ? Unknown.text(payload, from, to) : held;
      misfits.add(Unknown.entry(UTF8String.fromString(path), UTF8String.fromString(place), value));
    }
  }

  /** Forget what was left out of the object at a place: its name is repeated, and the last value counts. */
  void forgetLeftOut(String place) {
    misfits.removeIf(each -> isWithin(each.getUTF8String(1).toString(), place));
    if (unsalvageable != null) {
      unsalvageable.removeIf(each -> isWithin(each, place));
    }
  }

  /** Note that the object at a place lacks a value that it must have. */
  void unsalvageable(String place) {
    if (unsalvageable == null) {
      unsalvageable = new HashSet<>();
    }
    unsalvageable.add(place);
  }

  /** Whether leaving out values gives a record. */
  boolean isSalvageable() {
    return unsalvageable == null || unsalvageable.isEmpty();
  }

  private static boolean isWithin(String place, String outer) {
    return place.equals(outer) || place.startsWith(outer + ".") || place.startsWith(outer + "[");
  }

  /**
   * The paths of the fields that the record lacks, sorted, without duplicates; null if there are none.
   *
   * @param root the decoder's
   */
  ArrayData paths(StructField root) throws IOException {
    if (paths == null && asUsual == 0) {
      return null;
    }
    if (paths == null && asUsual == usual.size() && !repeats) {
      return usual.sorted;
    }
    List<UTF8String> ordered = ordered();
    if (repeats) {
      ordered.clear();
      Unknown.of(payload, root, false).forEach(entry -> ordered.add(entry.getUTF8String(0)));
    }
    GenericArrayData sorted = ordered.isEmpty() ? null : new GenericArrayData(new TreeSet<>(ordered).toArray());
    if (sorted != null) {
      usual.set(ordered, sorted);
    }
    return sorted;
  }
}
