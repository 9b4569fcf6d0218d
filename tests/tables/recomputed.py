"""Web requests that a test publishes and keeps, and what DuckDB makes of them: bronze, silver and gold, recomputed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb
import pyarrow as pa

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.tools.local.generator import HOSTS, METHODS, STATUSES
from kdi_assets.tools.local.publisher import Outbox

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 20_000
DAY = timedelta(days=1)
LEVELS = ("bronze", "silver", "gold")

_MODEL = """
CREATE OR REPLACE TABLE bronze AS
SELECT CAST(substr(said ->> '$.meta.producer.timestamp', 1, 10) AS DATE) AS date,
       partition,
       "offset",
       said ->> '$.uuid' AS uuid,
       said ->> '$.session_id' AS session_id,
       said ->> '$.method' AS method,
       CAST(said ->> '$.status' AS INTEGER) AS status,
       {host} AS host,
       epoch_us(CAST(said ->> '$.meta.producer.timestamp' AS TIMESTAMPTZ)) AS micros
FROM (SELECT * REPLACE (CAST(said AS JSON) AS said) FROM messages WHERE json_valid(said))
ANTI JOIN removed USING (partition, "offset");

CREATE OR REPLACE TABLE silver AS
SELECT date, uuid, session_id, host, status, micros
FROM bronze
WHERE NOT EXISTS (
  SELECT 1 FROM bronze AS earlier
  WHERE earlier.uuid = bronze.uuid AND earlier.micros < bronze.micros AND earlier.date >= bronze.date - 1
);

CREATE OR REPLACE TABLE gold AS
SELECT date, host, count(*) AS requests, count(DISTINCT session_id) AS sessions,
       CAST(count(*) FILTER (status >= 500) AS BIGINT) AS errors
FROM silver GROUP BY date, host;
"""
HOST = "regexp_extract(said ->> '$.url', '^https://([^/]+)', 1)"


@dataclass(frozen=True, slots=True)
class Request:
    """A web request."""

    uuid: str
    session: str
    host: str
    at: datetime

    def message(self, *, status: int, method: str) -> bytes:
        """As the demo's generator writes it."""
        return (
            f'{{"meta":{{"producer":{{"timestamp":"{self.at:%Y-%m-%dT%H:%M:%S.%f}+00:00"}}}},"method":"{method}",'
            f'"session_id":"{self.session}","status":{status},'
            f'"url":"https://{self.host}/catalogue/winter/boots?referrer={self.uuid}{self.uuid}","uuid":"{self.uuid}"}}'
        ).encode()


def made_up_requests(
    count: int, days: Sequence[date], random: Random, *, sent_again: float = 0.0, bad: float = 0.0, method: str = ""
) -> Iterator[bytes | None]:
    """Messages with dates and hosts by chance.

    Args:
        sent_again: Share of messages with the uuid of an earlier one, up to a day later.
        bad: Share of messages that are cut off; a tenth as many have no value.
        method: Of all of them; by default by chance.
    """
    recent: deque[Request] = deque(maxlen=1000)
    begins = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    for _ in range(count):
        if recent and random.random() < sent_again:
            first = random.choice(recent)
            request = Request(first.uuid, first.session, first.host, first.at + DAY * random.random())
        else:
            session = f"{random.randrange(1 + count // 5):08x}"
            at = random.choice(begins) + timedelta(microseconds=random.randrange(86_400_000_000))
            request = Request(str(UUID(int=random.getrandbits(128))), session, random.choice(HOSTS), at)
            recent.append(request)
        value = request.message(status=random.choice(STATUSES), method=method or random.choice(METHODS))
        draw = random.random()
        yield value[: len(value) // 2] if draw < bad else None if draw < 1.1 * bad else value


class KeptMessages:
    """The messages of a new topic in a DuckDB file, with their coordinates, and the tables that they should give."""

    def __init__(self, cluster: Cluster, topic: str, *, partitions: int, file: Path) -> None:
        self._cluster, self._topic, self._ends = cluster, topic, [0] * partitions
        self.duck = duckdb.connect(str(file))
        self.duck.execute('CREATE TABLE messages (partition INTEGER, "offset" BIGINT, said VARCHAR)')
        self.duck.execute('CREATE TABLE removed (partition INTEGER, "offset" BIGINT)')
        self.duck.execute("SET TimeZone = 'UTC'")

    def publish(self, values: Iterator[bytes | None]) -> None:
        """Publish to all topic partitions in turn, and keep them; all are acknowledged when it returns."""
        outbox = Outbox(self._cluster, self._topic)
        while batch := list(islice(values, BATCH)):
            for partition, end in enumerate(self._ends):
                part = batch[partition :: len(self._ends)]
                outbox.put(part, partition=partition)
                self._keep(part, partition, end)
                self._ends[partition] += len(part)
            outbox.wait(until=0.0, stopped=lambda: False)  # for room in the queue
        outbox.close()

    def _keep(self, values: Sequence[bytes | None], partition: int, first: int) -> None:
        """An idempotent producer, alone in a new topic: the offsets are the order of the messages."""
        said = pa.array([value and value.decode() for value in values], pa.string())
        offsets = pa.array(range(first, first + len(values)), pa.int64())
        numbers = pa.array([partition] * len(values), pa.int32())
        sent = pa.table({"partition": numbers, "offset": offsets, "said": said})
        self.duck.register("sent", sent)
        self.duck.execute("INSERT INTO messages SELECT * FROM sent")
        self.duck.unregister("sent")

    def remove(self, where: str, limit: int) -> list[tuple[int, int]]:
        """Take rows out of the recomputation; their partitions and offsets."""
        chosen = (
            f'SELECT partition, "offset" FROM bronze WHERE {where} ORDER BY hash("offset", partition) LIMIT {limit}'
        )
        self.duck.execute(f"INSERT INTO removed {chosen}")
        return self.duck.execute("FROM removed").fetchall()

    def recompute(self, host: str = HOST) -> Recomputed:
        """Compute all levels.

        Args:
            host: What today's document makes of a message's host, in DuckDB's SQL.
        """
        known = self.duck.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'gold'").fetchone() != (0,)
        self.duck.execute("CREATE OR REPLACE TABLE gold_before AS " + ("FROM gold" if known else "SELECT 1 AS none"))
        self.duck.execute(_MODEL.format(host=host))
        rows = {level: self._count(f"FROM {level}") for level in LEVELS}
        changed = self._count("FROM gold EXCEPT FROM gold_before") if known else rows["gold"]
        return Recomputed(rows, changed)

    def _count(self, query: str) -> int:
        found = self.duck.execute(f"SELECT count(*) FROM ({query})").fetchone()
        assert found is not None
        return int(found[0])

    def assert_equal(self, level: str, rows: Any, columns: str) -> None:
        """Rows are those of the level.

        Args:
            rows: An Arrow table without structs, or the data files of a Delta table: DuckDB 1.5.5 reads other values of
                a struct's fields from large Arrow tables than pyarrow and Spark.
            columns: Of the level, computed of the rows.
        """
        source = self.duck.read_parquet(rows, hive_partitioning=True) if isinstance(rows, list) else rows
        self.duck.register("ours", source)
        ours = f"SELECT {columns} FROM ours"
        for name, query in {
            "missing": f"FROM {level} EXCEPT ALL {ours}",
            "too many": f"{ours} EXCEPT ALL FROM {level}",
        }.items():
            found = self.duck.execute(f"FROM ({query}) LIMIT 3").fetchall()
            assert not found, f"{level}: {self._count(query)} rows {name}, as {found}"
        self.duck.unregister("ours")


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What the messages should give by now.

    Attributes:
        rows: Their number, by level.
        gold_changed: Rows of gold that are new or other than before.
    """

    rows: dict[str, int]
    gold_changed: int
