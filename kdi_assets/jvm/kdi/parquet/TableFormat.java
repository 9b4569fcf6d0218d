package kdi.parquet;

import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import scala.collection.immutable.Map;

/** Delta's format of data files, written by {@link FileWriter} unless a setting or a type is none that it knows. */
public final class TableFormat extends DeltaParquetFileFormat {
  TableFormat(DeltaParquetFileFormat delta) {
    super(
        delta.protocol(), delta.metadata(), delta.nullableRowTrackingConstantFields(),
        delta.nullableRowTrackingGeneratedFields(), delta.optimizationsEnabled(), delta.tablePath(), delta.isCDCRead());
  }

  @Override
  public OutputWriterFactory prepareWrite(
      SparkSession session, Job job, Map<String, String> options, StructType columns) {
    OutputWriterFactory delta = super.prepareWrite(session, job, options, columns);
    // Spark has another writer for variants, which it may write by their fields.
    boolean hasVariants = columns.existsRecursively(type -> type instanceof VariantType);
    return FileWriter.knows(job.getConfiguration()) && !hasVariants ? new Files(delta) : delta;
  }

  private static final class Files extends OutputWriterFactory {
    private final OutputWriterFactory delta;

    Files(OutputWriterFactory delta) {
      this.delta = delta;
    }

    @Override
    public String getFileExtension(TaskAttemptContext context) {
      return delta.getFileExtension(context);
    }

    @Override
    public OutputWriter newInstance(String path, StructType columns, TaskAttemptContext context) {
      return new FileWriter(path, context);
    }
  }
}
