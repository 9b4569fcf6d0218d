"""What each kind of table can do, and why not if it cannot: ``docs/kinds-of-tables.md`` is written from here. No I/O.

A new kind of table fills every row. ``TABLE`` in a command is the name of a table of that kind, ``STREAM`` that of a
stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class TableKind(StrEnum):
    """The kinds of tables that documents describe."""

    STREAM = "stream"
    REFINED = "refined"
    SERVED = "served"
    ANNOUNCED = "announced"


KINDS: Mapping[TableKind, str] = {
    TableKind.STREAM: "[stream](streams.md)",
    TableKind.REFINED: "[refined](refined-tables.md)",
    TableKind.SERVED: "[served](served-tables.md)",
    TableKind.ANNOUNCED: "[announced](files.md#announce)",
}
"""The page of each kind."""


@dataclass(frozen=True, slots=True)
class Has:
    """The kind can do it.

    Attributes:
        by: What does it, in Markdown.
        command: The command line that does or shows it; empty: there is none.
        page: Page and anchor with more; empty: the kind's own page.
    """

    by: str
    command: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True)
class Lacks:
    """The kind cannot do it, or does not need it: why, and what to use instead."""

    why: str


@dataclass(frozen=True, slots=True)
class Capability:
    """A row of the matrix.

    Attributes:
        question: What a user wants to know or to do.
    """

    name: str
    question: str
    stream: Has | Lacks
    refined: Has | Lacks
    served: Has | Lacks
    announced: Has | Lacks

    def of(self, kind: TableKind) -> Has | Lacks:
        """The cell of a kind."""
        return {
            TableKind.STREAM: self.stream,
            TableKind.REFINED: self.refined,
            TableKind.SERVED: self.served,
            TableKind.ANNOUNCED: self.announced,
        }[kind]


_FOLLOWS, _ALERTS = "refined-tables.md#in-dagster", "operations.md#alerts"
_KEEPS = "keep.md#tables-made-of-the-table"
_ERASES, _METRICS = "erase.md#what-is-made-of-the-table", "metrics.md#gauges"

CAPABILITIES: tuple[Capability, ...] = (
    Capability(
        "start",
        "What starts its runs?",
        stream=Has(
            "the sensor `lag_<cluster>` does it, when a limit of `drain_when` is reached",
            "kdi drain TABLE",
            "streams.md#when-a-run-starts",
        ),
        refined=Has("the sensor `follow` does it, when a table upstream has new rows", "kdi refine TABLE", _FOLLOWS),
        served=Has("the sensor `follow` does it, when the Delta table has new rows", "kdi serve TABLE", _FOLLOWS),
        announced=Has(
            "each drain and replay announces after its commits; the sensor `follow` announces what no run did",
            "kdi drain TABLE",
        ),
    ),
    Capability(
        "cron",
        "Can it run at fixed times?",
        stream=Has("`drain_when: {cron: …}`", page="streams.md#when-a-run-starts"),
        refined=Has("`cron`", page=_FOLLOWS),
        served=Has("`cron`", page=_FOLLOWS),
        announced=Lacks("a version is announced as soon as it is committed; the stream's `cron` decides when that is"),
    ),
    Capability(
        "back-off",
        "When does a failed run start again?",
        stream=Has("10 s after a run that moved no position, then 20 s and so on, up to 10 minutes"),
        refined=Has("the same, after a run that committed nothing", page=_FOLLOWS),
        served=Has("the same, after a run that published nothing", page=_FOLLOWS),
        announced=Has("the same, for the sensor; each drain tries too"),
    ),
    Capability(
        "events",
        "What does Dagster log?",
        stream=Has("a materialization for each date that a commit touched; the lag sensor logs those that are missing"),
        refined=Has("the same; the sensor `follow` logs those that are missing", page=_FOLLOWS),
        served=Has("a materialization for each run, with the version that the database has"),
        announced=Lacks(
            "the log of the stream's run, or the tick of the sensor `follow`, says which versions were announced"
        ),
    ),
    Capability(
        "checks",
        "Which asset checks are there?",
        stream=Has("checks of offsets, dates, dead letters, backlog and files", "kdi check-assets TABLE", "checks.md"),
        refined=Has("expectations, order, delay, and a comparison with a recomputation", page=_FOLLOWS),
        served=Lacks(
            "each run publishes nothing if its rows do not add up: PostgreSQL by the numbers of new and changed keys, "
            "DuckDB if a key is empty or repeated"
        ),
        announced=Lacks(
            "one Kafka transaction has the announcements and the bookmark, so that no version is left out or repeated"
        ),
    ),
    Capability(
        "alerts",
        "Who is alerted when it stands still?",
        stream=Has("the lag sensor sends to `KDI_ALERT_WEBHOOK`", page=_ALERTS),
        refined=Has("the sensor `downstream_alerts` sends to `KDI_ALERT_WEBHOOK`", page=_ALERTS),
        served=Has("the same, except for tables in the embedded server, which may not run", page=_ALERTS),
        announced=Has("the same, also with the limit of the stream's `freshness`", page=_ALERTS),
    ),
    Capability(
        "status",
        "How far is it behind?",
        stream=Has("backlog, lag, time to loss, state", "kdi status TABLE"),
        refined=Has("what is new upstream, and since when it waits", "kdi status TABLE"),
        served=Has("versions that the database lacks, and since when", "kdi status TABLE"),
        announced=Has("versions that are not announced, and since when", "kdi status TABLE"),
    ),
    Capability(
        "metrics",
        "What does Prometheus get?",
        stream=Has("`kdi_stream_up` and the other gauges and counters", "kdi metrics serve", _METRICS),
        refined=Has('`kdi_downstream_…` with `kind="refined"`', "kdi metrics serve", _METRICS),
        served=Has(
            '`kdi_downstream_…` with `kind="served"`; not for the embedded server, which may not run',
            "kdi metrics serve",
            _METRICS,
        ),
        announced=Has('`kdi_downstream_…` with `kind="announced"`', "kdi metrics serve", _METRICS),
    ),
    Capability(
        "cost",
        "What did its runs use?",
        stream=Has("CPU seconds, bytes, files and requests of its commits, times prices", "kdi cost TABLE", "cost.md"),
        refined=Has("the same, of its refinements and compactions", "kdi cost TABLE", "cost.md"),
        served=Lacks("what a run used is not recorded; the database has figures of its own work"),
        announced=Lacks("what announcing used is not recorded; the drains before it are the stream's"),
    ),
    Capability(
        "freshness",
        "Is it fresh?",
        stream=Has(
            "seconds from message to row; `freshness` adds the check `fresh`, a policy and a limit",
            "kdi freshness TABLE",
            "checks.md#freshness",
        ),
        refined=Has(
            "how long rows wait; `freshness` adds the check `up_to_date`, a policy and an alert",
            "kdi freshness TABLE",
            _FOLLOWS,
        ),
        served=Has(
            "how long rows wait; `freshness` adds a policy and an alert, except in the embedded server, which may not "
            "run",
            "kdi freshness TABLE",
            _ALERTS,
        ),
        announced=Has("`freshness` of the stream is the limit of the alert", page=_ALERTS),
    ),
    Capability(
        "plan",
        "What would the next run do?",
        stream=Has("the ranges of offsets, of Kinesis since when records wait; or the refusal", "kdi plan TABLE"),
        refined=Has("the versions upstream and the dates, or the refusal", "kdi plan TABLE"),
        served=Has(
            "the versions and files that it would read, or that it would compare or replace all rows, or the refusal",
            "kdi plan TABLE",
        ),
        announced=Lacks("there is nothing to decide: every version is announced, in order"),
    ),
    Capability(
        "history",
        "What did its runs do?",
        stream=Has("every commit, with its ranges and decisions", "kdi history TABLE"),
        refined=Has("every commit, with the versions that it consumed", "kdi history TABLE"),
        served=Lacks("the database keeps only its newest version; the asset's materializations are the list"),
        announced=Lacks("the topic is the history: each message has version, time and operation"),
    ),
    Capability(
        "audit",
        "Is it known that no row is missing or there twice?",
        stream=Has("accounts for every offset", "kdi audit TABLE", "how-it-works.md#the-audit"),
        refined=Has("compares the rows of some dates, or all, with a recomputation", "kdi audit TABLE"),
        served=Lacks(
            "no command compares without changing anything; `kdi serve TABLE --rebuild` compares all rows, and changes "
            "those that differ"
        ),
        announced=Lacks("no message has rows; the stream's audit accounts for those of the table"),
    ),
    Capability(
        "again",
        "How are rows made again, after a change of the document or a mistake?",
        stream=Has(
            "reads the messages of some dates again, and replaces their rows",
            "kdi replay TABLE --from DATE --to DATE",
            "replay.md",
        ),
        refined=Has("computes all rows again; `kdi replay` those of some dates", "kdi refine TABLE --rebuild"),
        served=Has(
            "PostgreSQL: compares all rows, or loads them into a new table; DuckDB: replaces them",
            "kdi serve TABLE --rebuild",
        ),
        announced=Lacks("a version is announced once; consumers read the topic again, or the table as it is"),
    ),
    Capability(
        "doctor",
        "Is everything there that a run needs?",
        stream=Has("brokers or Kinesis, rights, topic, retention, storage, machine", "kdi doctor TABLE"),
        refined=Has("can what is new upstream be read, or what refuses it; storage, machine", "kdi doctor TABLE"),
        served=Has(
            "the same, and does the database answer; the embedded server is asked while it runs", "kdi doctor TABLE"
        ),
        announced=Has(
            "is the topic of the announcements there, and can its bookmark and the table's log be read",
            "kdi doctor TABLE",
        ),
    ),
    Capability(
        "lineage",
        "Do lineage tools see it?",
        stream=Has("OpenLineage events of each run", page="lineage-and-catalogs.md#openlineage"),
        refined=Has(
            "OpenLineage events of each run, without columns; Dagster's materializations have the column lineage",
            page="lineage-and-catalogs.md#openlineage",
        ),
        served=Has(
            "OpenLineage events of each run, without columns; Dagster's graph has the table in the database",
            page="lineage-and-catalogs.md#openlineage",
        ),
        announced=Lacks("a message has the URI of the table, and the table's stream sends the events"),
    ),
    Capability(
        "catalog",
        "Do catalogs have it?",
        stream=Has("each run registers it in AWS Glue or Spark's catalog", page="lineage-and-catalogs.md#catalogs"),
        refined=Has("the same", page="lineage-and-catalogs.md#catalogs"),
        served=Lacks("the database is its own catalog"),
        announced=Lacks("its stream registers the table; who reads files by path needs no catalog"),
    ),
    Capability(
        "upkeep",
        "Who compacts and cleans up?",
        stream=Has("the runs `upkeep_<group>_…`, also for dead letters", "kdi upkeep TABLE", "operations.md#upkeep"),
        refined=Has("the same runs", "kdi upkeep TABLE", "refined-tables.md#upkeep"),
        served=Lacks("PostgreSQL (autovacuum) and DuckDB do it themselves"),
        announced=Lacks("Kafka's retention deletes old announcements, and the topic of the bookmarks is compacted"),
    ),
    Capability(
        "keep",
        "How do old rows leave?",
        stream=Has(
            "`keep: 400 days`, rows and dead letters, recorded as kept no longer", "kdi upkeep TABLE", "keep.md"
        ),
        refined=Has(
            "`keep` of its own; without it, it keeps what its upstream keeps no longer", "kdi upkeep TABLE", _KEEPS
        ),
        served=Has("they leave when they leave its Delta table", page=_KEEPS),
        announced=Has("the files that left are announced as `removed`, with `commit: expire`", page=_KEEPS),
    ),
    Capability(
        "erase",
        "How do a person's rows leave?",
        stream=Has("rows, dead letters and removed rows", "kdi erase TABLE", "erase.md"),
        refined=Has("refines the table, and looks for rows that are left", "kdi erase STREAM", _ERASES),
        served=Has("deletes the rows in the database", "kdi erase STREAM", _ERASES),
        announced=Has(
            "the erasure is announced like every version: `removed` has the files that consumers must drop",
            "kdi erase STREAM",
        ),
    ),
    Capability(
        "upstream restored",
        "What if its upstream goes back, or is made again?",
        stream=Has(
            "for a topic that was made again; `accept-loss` or `rewind` for lost messages; until someone decides, a "
            "drain refuses",
            "kdi resolve TABLE new-topic",
            "operations.md#decisions",
        ),
        refined=Has(
            "RESTORE upstream counts as rows that were removed and added",
            page="refined-tables.md#exactly-once-by-version",
        ),
        served=Has(
            "PostgreSQL: RESTORE is served by the change feed; without one, all rows are compared. DuckDB: all rows "
            "are replaced, as at each version"
        ),
        announced=Has("RESTORE is announced as a version with `operation: RESTORE`, and `only_adds` is false"),
    ),
    Capability(
        "table restored",
        "What if it goes back itself?",
        stream=Has(
            "RESTORE sets the positions back with the rows, and the messages are drained again",
            page="how-it-works.md#restore",
        ),
        refined=Has(
            "RESTORE sets its bookmarks back with the rows, and what came later is refined again",
            page="refined-tables.md#exactly-once-by-version",
        ),
        served=Has("a backup of the database has its older version with the rows, and what came later is served again"),
        announced=Has("if the topic of the bookmarks is lost, all files are listed again, and the run says so"),
    ),
)
