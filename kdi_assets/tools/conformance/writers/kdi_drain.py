"""The commands of our own adapter: a document for the stream, `kdi drain`, and what its refusals name.

Programs of the command line are started as a user starts them; only ``table`` reads the ledger itself, to say which
dead letters count.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCUMENT = """type: kdi_assets.components.TopicTable
attributes:
  topic: {topic}
  table: {name}
  schema: "id bigint NOT NULL, name string, amount double, at string NOT NULL"
  date: "to_date(substr(at, 1, 10))"
  contract: {{new_columns: evolve}}
---
type: kdi_assets.components.KafkaCluster
attributes:
  name: main
  bootstrap_servers: 127.0.0.1:9092
"""
KDI = (sys.executable, "-m", "kdi_assets.cli")


def prepare(work: str, topic: str, table: str) -> Path:
    """Write the stream's document, and set where its lake is; the folder of documents."""
    defs = Path(work) / "defs"
    os.environ |= {"KDI_LAKE": str(Path(table).parent), "KDI_DEFS": str(defs)}
    if not (defs / "defs.yaml").exists():
        defs.mkdir(parents=True, exist_ok=True)
        new = defs / f"new-{os.getpid()}"
        new.write_text(DOCUMENT.format(topic=topic, name=Path(table).name))
        new.rename(defs / "defs.yaml")  # another writer may start at the same moment
    return defs


def start() -> None:
    """Become `kdi drain`."""
    os.execv(KDI[0], [*KDI, "drain", "--all", "--json"])  # noqa: S606


def decide(output: str) -> int:
    """Do what the refusal names; 1 if it names no decision."""
    said = [line for line in Path(output).read_text().splitlines() if line.startswith("{")]
    error = json.loads(said[-1])["error"] if said else None
    if not error or error["retry_helps"] or not error["run"].startswith("kdi resolve "):
        return 1
    # After the command, an explanation may follow in brackets or behind a comma or semicolon.
    command = re.split(r"   |[;,] ", error["run"])[0]
    done = subprocess.run([*KDI, *shlex.split(command)[1:], "--yes"], capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    sys.stdout.write(f"{command} --yes\n")
    return done.returncode


def table(topic: str, uri: str) -> None:
    """Print where rows and dead letters are. Letters count if an entry of the live history names their attempt."""
    from kdi_assets.streams.ledger.history import live_history

    history = live_history(uri, topic, archive_uri=f"{uri}_ledger")
    attempts = [entry.attempt_id for entry in history.entries] if history else []
    letters = {"uri": f"{uri}_dead_letters", "partition": "partition", "offset": "offset"}
    place = {"uri": uri, "partition": "kafka.partition", "offset": "kafka.offset", "date": "date"}
    counting = {"value": [{"column": "value"}], "only": {"attempt_id": attempts}}
    sys.stdout.write(json.dumps({"rows": place, "dead_letters": {**letters, **counting}}) + "\n")


def main(command: str, work: str, topic: str, uri: str, *rest: str) -> int:
    """Carry out one of the adapter's commands."""
    prepare(work, topic, uri)
    match command:
        case "start":
            start()
        case "decide":
            return decide(*rest)
        case "table":
            table(topic, uri)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
