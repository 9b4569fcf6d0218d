package kdi.drain;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/** Counts messages by names in them, with limits, because any names of messages must not fill memory or log. */
final class Names implements Serializable {
  private static final int OF_A_MESSAGE = 30;
  private static final int CHARACTERS = 120;
  private static final int COUNTED = 4_096;

  private final Map<String, Seen> byName = new HashMap<>();
  private final Seen any = new Seen();
  private boolean others;
  /** The last message's names and their counts; decoders give messages with the same names the same array. */
  private transient ArrayData last;
  private transient List<Seen> ofLast;

  /** @param names of a message, without duplicates */
  void add(ArrayData names, int partition, long offset) {
    int named = Math.min(names.numElements(), OF_A_MESSAGE);
    if (named == 0) {
      return;
    }
    others |= named < names.numElements();
    Seen message = new Seen(partition, offset);
    any.add(message);
    if (names == last) {
      ofLast.forEach(seen -> seen.add(message));
      return;
    }
    last = names instanceof GenericArrayData ? names : null; // others may be filled again
    ofLast = new ArrayList<>(named);
    for (int at = 0; at < named; at++) {
      Seen seen = add(cut(names.getUTF8String(at).toString()), message);
      if (seen != null) {
        ofLast.add(seen);
      }
    }
  }

  void merge(Names more) {
    any.add(more.any);
    others |= more.others;
    more.byName.forEach(this::add);
  }

  /** For JSON: the messages with any name, the messages by name, and whether there were other names. */
  Map<String, Object> asMap() {
    Map<String, Object> named = new LinkedHashMap<>();
    byName.forEach((name, seen) -> named.put(name, seen.asArray()));
    return Map.of("any", any.asArray(), "named", named, "others", others);
  }

  /** Returns the counts of the name; null if there are too many names. */
  private Seen add(String name, Seen more) {
    Seen seen = byName.get(name);
    if (seen != null) {
      seen.add(more);
    } else if (byName.size() < COUNTED) {
      seen = new Seen(more);
      byName.put(name, seen);
    } else {
      others = true;
    }
    return seen;
  }

  /** The name in one line, cut off, and never empty. */
  private static String cut(String name) {
    String line = name.isEmpty() ? "\"\"" : name.replace('\n', ' ');
    int characters = line.codePointCount(0, line.length());
    return characters <= CHARACTERS ? line : line.substring(0, line.offsetByCodePoints(0, CHARACTERS));
  }

  /** A number of messages, and the offset of the first. */
  private static final class Seen implements Serializable {
    private long messages;
    private int partition = Integer.MAX_VALUE;
    private long offset;

    Seen() {}

    Seen(int partition, long offset) {
      this.messages = 1;
      this.partition = partition;
      this.offset = offset;
    }

    Seen(Seen other) {
      this(other.partition, other.offset);
      this.messages = other.messages;
    }

    void add(Seen more) {
      messages += more.messages;
      if (more.partition < partition || more.partition == partition && more.offset < offset) {
        partition = more.partition;
        offset = more.offset;
      }
    }

    long[] asArray() {
      return new long[] {messages, partition, offset};
    }
  }
}
