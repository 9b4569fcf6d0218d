package kdi.parquet;

import static org.apache.parquet.column.Encoding.PLAIN_DICTIONARY;
import static org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName.BINARY;

import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.column.values.ValuesWriter;
import org.apache.parquet.column.values.factory.DefaultV1ValuesWriterFactory;
import org.apache.parquet.column.values.factory.ValuesWriterFactory;
import org.apache.parquet.column.values.fallback.FallbackValuesWriter;
import org.apache.parquet.column.values.plain.PlainValuesWriter;

/** Parquet's encodings, version 1, with our dictionary for texts. One for each file. */
final class Encodings implements ValuesWriterFactory {
  private final ValuesWriterFactory others = new DefaultV1ValuesWriterFactory();
  private ParquetProperties properties;

  @Override
  public void initialize(ParquetProperties properties) {
    this.properties = properties;
    others.initialize(properties);
  }

  @Override
  public ValuesWriter newValuesWriter(ColumnDescriptor column) {
    if (column.getPrimitiveType().getPrimitiveTypeName() != BINARY || !properties.isDictionaryEnabled(column)) {
      return others.newValuesWriter(column);
    }
    // The plain values that a column has after its dictionary became too large.
    PlainValuesWriter plain = new PlainValuesWriter(
        properties.getInitialSlabSize(), properties.getPageSizeThreshold(), properties.getAllocator());
    return FallbackValuesWriter.of(new TextDictionary(properties, PLAIN_DICTIONARY), plain);
  }
}
