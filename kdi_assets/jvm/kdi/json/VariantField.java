package kdi.json;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import org.apache.spark.unsafe.types.VariantVal;

/** Any value, as a variant; of a name that is repeated in an object, the last value counts. */
final class VariantField extends Leaves.Leaf {
  VariantField(String path, Problem missing, Leaves.Problems problems) {
    super(path, missing, problems);
  }

  @Override
  Object read(JsonParser parser, Pass pass) throws IOException {
    int from = (int) parser.currentTokenLocation().getByteOffset();
    parser.skipChildren();
    parser.finishToken();
    int to = (int) parser.currentLocation().getByteOffset();
    // From its bytes, so that the message is read to the end of the value whatever the builder refuses.
    try (Watched watched = new Watched(JsonDecoder.parser(pass.payload, from, to))) {
      watched.nextToken();
      VariantVal value = watched.variant();
      if (value == null) {
        return pass.misfit(watched.holdsHalfCharacters ? problems.invalidUtf8() : problems.outOfRange());
      }
      return value;
    }
  }
}
