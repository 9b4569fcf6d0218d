package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
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

/** The state of one pass over a message, and what it found beside the record. */
final class Pass {
  final byte[] payload;

  /** Whether a field that does not fit its type becomes null, and its value a misfit. */
  final boolean salvaging;

  final List<InternalRow> misfits = new ArrayList<>();

  /** The problem of the last value, if that was {@code Field.MISFIT}. */
  Problem problem;

  /** Whether leaving out values cannot give a record. */
  boolean unsalvageable;

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
  void leftOut(UTF8String path, int from, int to) throws IOException {
    try (JsonParser parser = JsonDecoder.parser(payload, from, to)) {
      parser.nextToken();
      misfits.add(Unknown.entry(path, path, parser));
    }
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
      try (JsonParser parser = JsonDecoder.parser(payload, 0, payload.length)) {
        parser.nextToken();
        Unknown.of(parser, root).forEach(entry -> ordered.add(entry.getUTF8String(0)));
      }
    }
    GenericArrayData sorted = ordered.isEmpty() ? null : new GenericArrayData(new TreeSet<>(ordered).toArray());
    if (sorted != null) {
      usual.set(ordered, sorted);
    }
    return sorted;
  }
}
