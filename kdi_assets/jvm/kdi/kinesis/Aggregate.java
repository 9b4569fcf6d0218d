package kdi.kinesis;

import java.math.BigInteger;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * The user records in the data of a record, as the Kinesis Producer Library (KPL) puts several into one.
 *
 * <p>The data is a magic number, a Protobuf message and its MD5. The message has a table of partition keys (field 1), one
 * of hash keys (2), and the user records (3): index of the partition key (1), of the hash key if it has one (2), data (3).
 */
final class Aggregate {
  private static final byte[] MAGIC = {(byte) 0xF3, (byte) 0x89, (byte) 0x9A, (byte) 0xC2};
  private static final int MD5_BYTES = 16;
  /** Digits of 2^128: a longer text is no hash key, and would take long to become a number. */
  private static final int MOST_DIGITS = 39;
  private static final int NONE = -1;
  /** Ints of a user record: index of its partition key and of its hash key, where its data begins, length of its data. */
  private static final int INTS = 4;

  private final byte[] data;
  /** Where each text begins, and its length. */
  private final int[] keys;

  private final int[] hashKeys;
  private final int[] records;

  private Aggregate(byte[] data, ByteBuffer message) {
    this.data = data;
    IntStream.Builder keys = IntStream.builder();
    IntStream.Builder hashKeys = IntStream.builder();
    IntStream.Builder records = IntStream.builder();
    while (message.hasRemaining()) {
      int tag = tag(message);
      switch (tag) {
        case 1 << 3 | 2 -> bytes(message, keys);
        case 2 << 3 | 2 -> bytes(message, hashKeys);
        case 3 << 3 | 2 -> {
          int end = message.limit();
          message.limit(length(message) + message.position());
          record(message, records);
          message.limit(end);
        }
        default -> skip(message, tag);
      }
    }
    this.keys = keys.build().toArray();
    this.hashKeys = hashKeys.build().toArray();
    this.records = records.build().toArray();
    for (int user = 0; user < size(); user++) {
      refuseUnless(records(user, 0) < this.keys.length / 2);
      refuseUnless(records(user, 1) == NONE || isNumber(records(user, 1)));
    }
  }

  /**
   * Null if the data is something else: it has no such magic number, was damaged, breaks the format, or has no user
   * record. Then it is the data of an ordinary record, of which nothing may be lost.
   */
  static Aggregate of(byte[] data) {
    int end = data.length - MD5_BYTES;
    if (end < MAGIC.length || !Arrays.equals(data, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
      return null;
    }
    if (!Arrays.equals(md5(data, MAGIC.length, end - MAGIC.length), Arrays.copyOfRange(data, end, data.length))) {
      return null;
    }
    try {
      Aggregate found = new Aggregate(data, ByteBuffer.wrap(data, MAGIC.length, end - MAGIC.length));
      return found.size() == 0 ? null : found;
    } catch (BufferUnderflowException | IllegalArgumentException broken) {
      return null;
    }
  }

  int size() {
    return records.length / INTS;
  }

  byte[] key(int user) {
    return text(keys, records(user, 0));
  }

  byte[] data(int user) {
    return Arrays.copyOfRange(data, records(user, 2), records(user, 2) + records(user, 3));
  }

  /** Whether the hash key of a user record lies between two, both inclusive; without its own, the MD5 of its key. */
  boolean isBetween(int user, BigInteger first, BigInteger last) {
    int given = records(user, 1);
    BigInteger hash =
        given == NONE
            ? new BigInteger(1, md5(data, keys[2 * records(user, 0)], keys[2 * records(user, 0) + 1]))
            : new BigInteger(new String(text(hashKeys, given), StandardCharsets.US_ASCII));
    return first.compareTo(hash) <= 0 && hash.compareTo(last) <= 0;
  }

  private int records(int user, int place) {
    return records[user * INTS + place];
  }

  private byte[] text(int[] table, int index) {
    return Arrays.copyOfRange(data, table[2 * index], table[2 * index] + table[2 * index + 1]);
  }

  private boolean isNumber(int hashKey) {
    if (hashKey >= hashKeys.length / 2) {
      return false;
    }
    byte[] text = text(hashKeys, hashKey);
    boolean digits = text.length > 0 && text.length <= MOST_DIGITS;
    for (byte digit : text) {
      digits &= digit >= '0' && digit <= '9';
    }
    return digits;
  }

  private static void record(ByteBuffer record, IntStream.Builder records) {
    int key = NONE;
    int hashKey = NONE;
    int begin = NONE;
    int length = 0;
    while (record.hasRemaining()) {
      int tag = tag(record);
      switch (tag) {
        case 1 << 3 -> key = index(record);
        case 2 << 3 -> hashKey = index(record);
        case 3 << 3 | 2 -> {
          length = length(record);
          begin = record.position();
          record.position(begin + length);
        }
        default -> skip(record, tag);
      }
    }
    refuseUnless(key != NONE && begin != NONE);
    records.add(key).add(hashKey).add(begin).add(length);
  }

  private static void bytes(ByteBuffer message, IntStream.Builder table) {
    int length = length(message);
    table.add(message.position()).add(length);
    message.position(message.position() + length);
  }

  private static int tag(ByteBuffer message) {
    long tag = varint(message);
    refuseUnless(tag >>> 3 != 0 && tag >>> 32 == 0);
    return (int) tag;
  }

  private static int index(ByteBuffer message) {
    long index = varint(message);
    refuseUnless(index >= 0 && index <= Integer.MAX_VALUE);
    return (int) index;
  }

  private static int length(ByteBuffer message) {
    long length = varint(message);
    refuseUnless(length >= 0 && length <= message.remaining());
    return (int) length;
  }

  private static void skip(ByteBuffer message, int tag) {
    switch (tag & 7) {
      case 0 -> varint(message);
      case 1 -> message.position(message.position() + 8);
      case 2 -> message.position(length(message) + message.position());
      case 5 -> message.position(message.position() + 4);
      default -> refuseUnless(false); // groups: nobody writes them
    }
  }

  private static long varint(ByteBuffer message) {
    long number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      byte read = message.get();
      number |= (long) (read & 127) << shift;
      if (read >= 0) {
        return number;
      }
    }
    throw new IllegalArgumentException();
  }

  private static void refuseUnless(boolean isWellFormed) {
    if (!isWellFormed) {
      throw new IllegalArgumentException();
    }
  }

  private static byte[] md5(byte[] bytes, int begin, int length) {
    try {
      MessageDigest md5 = MessageDigest.getInstance("MD5");
      md5.update(bytes, begin, length);
      return md5.digest();
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException(missing);
    }
  }
}
