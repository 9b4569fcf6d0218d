"""The runs of a code server are forks of a process that has imported what they need."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from tests.documents import CLUSTER, stream, written
from tests.table_by_hand import TableByHand, data_file

RUN = """
import os, sys
from datetime import date
from kdi_assets.definitions import definitions_for, defs_folder
from kdi_assets.resources import preloaded

if first := os.fork():
    os.waitpid(first, 0)
else:
    definitions_for(defs_folder())
    os._exit(0)
before = {*sys.modules}
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

from deltalake import DeltaTable, QueryBuilder
from kdi_assets.components.column_facts import date_facts

table = DeltaTable(sys.argv[1])
print({str(day): facts for day, facts in date_facts(table, [date.fromisoformat(sys.argv[2])]).items()})
print(QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t WHERE id < 0").schema.names)
print({"confluent_kafka", "deltalake", "numpy", "pandas", "pyarrow", "pyspark"} & (sys.modules.keys() - before))
print("inherits what the first run asked for:", definitions_for(defs_folder()).has_resolved_repository_def())
"""


def test_a_run_reads_tables_without_importing_what_takes_long(tmp_path: Path) -> None:
    table = TableByHand(tmp_path)
    today = table.now.date()
    table.commit(data_file(1, today, rows=3), ago=timedelta())
    folder = written(tmp_path / "documents", kafka=CLUSTER, orders=stream("shop/orders"))
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "KDI_DEFINITIONS_MODULE": "kdi_assets.definitions"}
    environment |= {"KDI_DEFS": str(folder), "KDI_KAFKA": ""}

    run = subprocess.run(
        [sys.executable, "-c", RUN, table.log.parent, f"{today}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert run.stdout.splitlines() == [
        f"{{'{today}': {{'dagster/partition_row_count': 3, 'files': 1}}}}",
        "['n']",
        "set()",
        "inherits what the first run asked for: True",
    ]
