package kdi.parquet;

import static org.apache.parquet.column.ParquetProperties.DEFAULT_PAGE_ROW_COUNT_LIMIT;
import static org.apache.parquet.column.ParquetProperties.WriterVersion.PARQUET_1_0;
import static org.apache.parquet.hadoop.ParquetOutputFormat.BLOCK_SIZE;
import static org.apache.parquet.hadoop.ParquetOutputFormat.COMPRESSION;
import static org.apache.parquet.hadoop.ParquetOutputFormat.DICTIONARY_PAGE_SIZE;
import static org.apache.parquet.hadoop.ParquetOutputFormat.ENABLE_DICTIONARY;
import static org.apache.parquet.hadoop.ParquetOutputFormat.JOB_SUMMARY_LEVEL;
import static org.apache.parquet.hadoop.ParquetOutputFormat.PAGE_ROW_COUNT_LIMIT;
import static org.apache.parquet.hadoop.ParquetOutputFormat.PAGE_SIZE;
import static org.apache.parquet.hadoop.ParquetOutputFormat.WRITER_VERSION;
import static org.apache.parquet.hadoop.ParquetOutputFormat.WRITE_SUPPORT_CLASS;

import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.VarHandle;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.hadoop.MemoryManager;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.ParquetRecordWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.codec.CodecConfig;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes a data file as Spark's writer does, byte for byte, with a faster dictionary of texts. */
final class FileWriter extends OutputWriter {
  private static final String SETTINGS = "parquet.";
  private static final String OF_COLUMN = ENABLE_DICTIONARY + "#";
  private static final Set<String> KNOWN = Set.of(
      BLOCK_SIZE, COMPRESSION, DICTIONARY_PAGE_SIZE, ENABLE_DICTIONARY, JOB_SUMMARY_LEVEL, PAGE_ROW_COUNT_LIMIT,
      PAGE_SIZE, WRITER_VERSION, WRITE_SUPPORT_CLASS, SETTINGS + "compression.codec.zstd.level");
  private static final Logger LOG = LoggerFactory.getLogger(FileWriter.class);

  /** The constructor that takes encodings, and the field with what shares the memory among all writers of a JVM. */
  private static final MethodHandle NEW_WRITER;
  private static final VarHandle MEMORY;

  static {
    MethodHandle newWriter = null;
    VarHandle memory = null;
    try {
      newWriter = newWriter();
      memory = MethodHandles.privateLookupIn(ParquetOutputFormat.class, MethodHandles.lookup())
          .findStaticVarHandle(ParquetOutputFormat.class, "memoryManager", MemoryManager.class);
    } catch (ReflectiveOperationException other) {
      newWriter = null; // Parquet keeps both to itself, and another version may have neither
      LOG.warn("Spark's writer writes the data files, for more CPU: this is another Parquet: {}", other.toString());
    }
    NEW_WRITER = newWriter;
    MEMORY = memory;
  }

  private final String path;
  private final TaskAttemptContext context;
  private final RecordWriter<Void, InternalRow> rows;

  FileWriter(String path, TaskAttemptContext context) {
    this.path = path;
    this.context = context;
    try {
      this.rows = opened();
    } catch (Throwable failed) {
      throw FileWriter.<RuntimeException>asItIs(failed);
    }
  }

  /** Whether it writes what Spark's writer would write with these settings, of which it knows only some. */
  static boolean knows(Configuration settings) {
    Set<String> names = settings.getPropsWithPrefix(SETTINGS).keySet();
    return NEW_WRITER != null
        && ParquetOutputFormat.getWriterVersion(settings) == PARQUET_1_0
        && names.stream().map(SETTINGS::concat).allMatch(FileWriter::isKnown);
  }

  private static boolean isKnown(String setting) {
    return KNOWN.contains(setting) || setting.startsWith(OF_COLUMN);
  }

  @SuppressWarnings("unchecked")
  private RecordWriter<Void, InternalRow> opened() throws Throwable {
    Configuration settings = context.getConfiguration();
    WriteSupport<InternalRow> support = new ParquetOutputFormat<InternalRow>().getWriteSupport(settings);
    WriteSupport.WriteContext written = support.init(settings);
    ParquetProperties properties = properties(settings);
    long rowGroup = ParquetOutputFormat.getLongBlockSize(settings);
    ParquetFileWriter file = new ParquetFileWriter(
        HadoopOutputFile.fromPath(new Path(path), settings), written.getSchema(), ParquetFileWriter.Mode.CREATE,
        rowGroup, ParquetWriter.MAX_PADDING_SIZE_DEFAULT, null, properties);
    file.start();
    CompressionCodecName codec = CodecConfig.from(context).getCodec();
    Map<String, String> footer = written.getExtraMetaData();
    return (ParquetRecordWriter<InternalRow>) NEW_WRITER.invoke(
        file, support, written.getSchema(), footer, rowGroup, codec, false, properties, memory(), settings);
  }

  /** Makes row groups smaller if many files are written at once, by Parquet's own writers too. */
  private static MemoryManager memory() {
    synchronized (ParquetOutputFormat.class) { // as Parquet does
      if (MEMORY.get() == null) {
        MEMORY.set(new MemoryManager(0.95f, 1L << 20)); // Parquet's defaults
      }
      return (MemoryManager) MEMORY.get();
    }
  }

  private static ParquetProperties properties(Configuration settings) {
    ParquetProperties.Builder properties = ParquetProperties.builder()
        .withPageSize(ParquetOutputFormat.getPageSize(settings))
        .withPageRowCountLimit(settings.getInt(PAGE_ROW_COUNT_LIMIT, DEFAULT_PAGE_ROW_COUNT_LIMIT))
        .withDictionaryPageSize(ParquetOutputFormat.getDictionaryPageSize(settings))
        .withDictionaryEncoding(ParquetOutputFormat.getEnableDictionary(settings))
        .withValuesWriterFactory(new Encodings());
    for (String column : settings.getPropsWithPrefix(OF_COLUMN).keySet()) {
      properties.withDictionaryEncoding(column, settings.getBoolean(OF_COLUMN + column, false));
    }
    return properties.build();
  }

  private static MethodHandle newWriter() throws ReflectiveOperationException {
    MethodType type = MethodType.methodType(
        void.class, ParquetFileWriter.class, WriteSupport.class, MessageType.class, Map.class, long.class,
        CompressionCodecName.class, boolean.class, ParquetProperties.class, MemoryManager.class, Configuration.class);
    return MethodHandles.privateLookupIn(ParquetRecordWriter.class, MethodHandles.lookup())
        .findConstructor(ParquetRecordWriter.class, type);
  }

  @Override
  public void write(InternalRow row) {
    try {
      rows.write(null, row);
    } catch (IOException | InterruptedException failed) {
      throw FileWriter.<RuntimeException>asItIs(failed);
    }
  }

  @Override
  public void close() {
    try {
      rows.close(context);
    } catch (IOException | InterruptedException failed) {
      throw FileWriter.<RuntimeException>asItIs(failed);
    }
  }

  /** Spark's methods are Scala's, which declare no exceptions; callers look for those of Spark's own writer. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E asItIs(Throwable failed) throws E {
    throw (E) failed;
  }

  @Override
  public String path() {
    return path;
  }
}
