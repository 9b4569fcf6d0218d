package kdi.drain;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.Seq;

/** Keeps the dead letters of a pass, up to a number of bytes. */
final class Letters implements Serializable {
  private final StructType type;
  private final long mostBytes;
  private final List<UnsafeRow> kept = new ArrayList<>();
  private long bytes;
  private transient UnsafeProjection pack;

  Letters(StructType type, long mostBytes) {
    this.type = type;
    this.mostBytes = mostBytes;
  }

  long mostBytes() {
    return mostBytes;
  }

  void add(InternalRow letter) {
    if (pack == null) {
      pack = UnsafeProjection.create(type);
    }
    keep(bytes > mostBytes ? null : pack.apply(letter));
  }

  void merge(Letters more) {
    more.kept.forEach(this::keep);
    bytes = Math.max(bytes, more.bytes);
  }

  /** The letters in the order of their offsets; null if they are too many. */
  @SuppressWarnings("unchecked")
  Dataset<Row> frame(SparkSession session) {
    if (bytes > mostBytes) {
      return null;
    }
    int partition = type.fieldIndex("partition");
    int offset = type.fieldIndex("offset");
    Comparator<InternalRow> byPartition = Comparator.comparingInt(letter -> letter.getInt(partition));
    InternalRow[] rows = kept.toArray(InternalRow[]::new);
    Arrays.sort(rows, byPartition.thenComparingLong(letter -> letter.getLong(offset)));
    Seq<Attribute> columns = (Seq<Attribute>) (Seq<?>) DataTypeUtils.toAttributes(type);
    return Dataset.ofRows(
        session, new LocalRelation(columns, ArraySeq.unsafeWrapArray(rows), false, Option.empty()));
  }

  private void keep(UnsafeRow letter) {
    if (letter == null || (bytes += letter.getSizeInBytes()) > mostBytes) {
      kept.clear();
    } else {
      kept.add(letter.copy());
    }
  }
}
