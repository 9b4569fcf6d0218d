"""What makes a table slow to open and to read: many small files, a long log."""

from __future__ import annotations

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.ledger.data_files import SMALL_BYTES, data_files

SMALL_FILES, SMALL_SHARE = 1_000, 0.5
"""Both: a small table has small files, and nobody minds."""
COMMITS_SINCE_CHECKPOINT, INTERVALS = 100, 4
"""Whatever opens the table reads each of these: 1,000 take a second on a local disk."""
LOG_FILES = 50_000
"""Names that a listing of the log goes through: 100,000 take half a second on a local disk, 100 requests elsewhere."""
DEFAULT_INTERVAL = 10


def table_health(subject: Subject) -> Finding:
    """Whether the files are large enough and the log short enough; nobody is called for it."""
    log = subject.log
    if log is None:
        return Finding("passed", "there is no table yet")
    files = data_files(log)
    checkpoint = log.checkpoint
    behind = log.version - (-1 if checkpoint is None else checkpoint)
    numbers = {
        "files": files.count,
        "bytes": files.bytes,
        "small_files": files.small,
        "small_share": files.small / files.count if files.count else 0.0,
        "commits_since_checkpoint": behind,
        "log_files": len(log.commit_files()),
    }
    interval = int(log.configuration.get("delta.checkpointInterval", DEFAULT_INTERVAL))
    faults = []
    if files.small >= SMALL_FILES and numbers["small_share"] >= SMALL_SHARE:
        faults.append(f"{files.small:,} of {files.count:,} files are below {SMALL_BYTES >> 20} MiB: compact the table")
    if behind > max(COMMITS_SINCE_CHECKPOINT, INTERVALS * interval):
        faults.append(f"{behind:,} commits since the last checkpoint, which each reader reads: `kdi upkeep` writes one")
    if numbers["log_files"] > LOG_FILES:
        faults.append(f"the log has {numbers['log_files']:,} commits: `kdi upkeep`, or a shorter logRetentionDuration")
    if faults:
        return Finding("warn", "; ".join(faults), numbers)
    return Finding("passed", f"{files.count:,} files, {behind:,} commits since the last checkpoint", numbers)
