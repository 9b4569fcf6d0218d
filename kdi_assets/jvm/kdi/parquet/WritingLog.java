package kdi.parquet;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.execution.datasources.FileFormat;
import scala.Option;

/** A table's log for a transaction whose data files are written by {@link FileWriter}; all else is Delta's. */
public final class WritingLog extends DeltaLog {
  /** @param log Delta's own, of which it takes over the newest snapshot */
  public WritingLog(DeltaLog log) {
    super(log.logPath(), log.dataPath(), log.options(), log.allOptions(), log.clock(), log.initialCatalogTable());
    currentSnapshot_$eq(log.getCapturedSnapshot());
  }

  /** Nothing, which the constructor of Delta's log calls: it would list the log again. */
  @Override
  public void createSnapshotAtInit(Option<CatalogTable> table) {}

  @Override
  public FileFormat fileFormat(Protocol protocol, Metadata metadata) {
    FileFormat delta = super.fileFormat(protocol, metadata);
    return delta.getClass() == DeltaParquetFileFormat.class ? new TableFormat((DeltaParquetFileFormat) delta) : delta;
  }
}
