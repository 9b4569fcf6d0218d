package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
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

  private TreeSet<UTF8String> paths;

  Pass(byte[] payload, boolean salvaging) {
    this.payload = payload;
    this.salvaging = salvaging;
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
  void unknown(String path, boolean isNull) {
    if (isNull) {
      repeats |= paths != null && paths.contains(UTF8String.fromString(path));
      return;
    }
    if (paths == null) {
      paths = new TreeSet<>();
    }
    paths.add(UTF8String.fromString(path));
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
    if (paths != null && repeats) {
      paths.clear();
      try (JsonParser parser = JsonDecoder.parser(payload, 0, payload.length)) {
        parser.nextToken();
        Unknown.of(parser, root).forEach(entry -> paths.add(entry.getUTF8String(0)));
      }
    }
    return paths == null || paths.isEmpty() ? null : new GenericArrayData(paths.toArray());
  }
}
