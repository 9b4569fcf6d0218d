"""The faults that ingestions into a lake meet in practice, for the tests that force them here.

A test names its faults by ``@pytest.mark.scenario("…")``; ``make faults`` runs them all and writes the table of
``docs/reliability.md`` from their docstrings and results.
"""

from __future__ import annotations

SCENARIOS: tuple[str, ...] = (
    "killed before reading",
    "killed after files are written",
    "killed during the commit",
    "killed after the commit, before Dagster's event",
    "killed between dead letters and commit",
    "broker restarts, leaders move",
    "retention passes the position",
    "topic deleted and made again",
    "topic partitions added",
    "aborted, open and torn transactions",
    "compacted topic",
    "poison message",
    "tombstone",
    "message of 10 MB and more",
    "empty payload, two documents in one",
    "the same range run twice",
    "two drivers at once",
    "a driver wakes after a long pause",
    "schema changes between drains",
    "storage fails, throttles, is slow",
    "disk full, storage read-only",
    "clock skew, wrong event times",
    "sensor daemon crashes, ticks are slow",
    "run queue lost, a run requested twice",
    "consumer group reset by someone",
    "credentials expire",
    "checkpoint or commit file corrupted",
    "RESTORE and time travel",
    "VACUUM during a drain",
    "table replaced, dropped or cloned",
    "OPTIMIZE, DELETE, MERGE, checkpoint during a drain",
    "log clean-up, transaction ids expire",
    "idle topic, start at its end",
    "topic with hardly any messages",
    "a figure at zero",
    "dead letters cannot be written",
    "many dates in one drain",
    "process paused beyond Spark's timeouts",
    "a machine of the cluster dies",
    "time zones at the date's boundary",
    "table written by an earlier release",
    "code location reloads during a run",
    "schema registry down, unknown schema id",
)
"""Every fault that applies to Kafka and Delta; each has at least one test, which the run of the matrix checks."""
