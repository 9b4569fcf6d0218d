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

/** One pass over a message: what it is to do, and what it found beside the record. */
final class Pass {
  final byte[] payload;

  /** Whether a field that does not suit its type becomes null, and its value a misfit. */
  final boolean salvaging;

  final List<InternalRow> misfits = new ArrayList<>();

  /** Of what was read last, if that was {@code Field.MISFIT}. */
  Problem problem;

  /** Whether no record can be had by leaving values out. */
  boolean condemned;

  /** Whether a name may stand twice in an object, so that not all paths need count. */
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
   * Note a field that the record has not.
   *
   * @param isNull whether it holds nothing, and so is not there: unless it did before
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

  /** Note the value that stands in the payload from an offset to another. */
  void leftOut(UTF8String path, int from, int to) throws IOException {
    try (JsonParser parser = JsonDecoder.parser(payload, from, to)) {
      parser.nextToken();
      misfits.add(Unknown.entry(path, path, parser));
    }
  }

  /**
   * The paths of the fields that the record has not: sorted, each once; null if there are none.
   *
   * @param root what the message was decoded by
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
