"""Checks of the ledger: accounted offsets, positions, and the drains of the last day."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from kdi_assets.delta.log import CommitInfo
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.operate.monitoring.checks.finding import NO_TABLE, CheckResult, Level
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.audit.errors import NothingToAudit
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import until_unreadable, walk_back
from kdi_assets.streams.ledger.positions import RETIRED, positions_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = 2_000
"""How many of the newest commits are read, each in a fraction of a millisecond."""
ERROR_FACTOR, ERROR_SHARE = 10, 0.5
"""The share of dead letters is an error from this multiple of the limit on, or from this share on."""
DAY = timedelta(hours=24)


class Audit(Protocol):
    """``kdi_assets.streams.audit.audit.audit``."""

    def __call__(self, stream: Stream, *, lake: str, session: Callable[[], SparkSession]) -> AuditReport: ...


def every_offset_accounted_for(subject: CheckSubject, *, audit: Audit = audit) -> CheckResult:
    """Whether every offset below the positions is a row, a dead letter, a confirmed gap or a declared loss, once.

    Raises:
        NothingToAudit: The ledger's entries are gone from the log, and the archive does not have them.
    """
    try:
        report = audit(subject.stream, lake=subject.lake, session=subject.session)
    except NothingToAudit as nothing:
        if nothing.knows_ledger:
            raise
        return NO_TABLE
    known = {f.name: getattr(report, f.name) for f in fields(report)} | {"what to run": report.commands()}
    return CheckResult(
        "passed" if report.complete else "error",
        report.line(),
        {name: n for name, n in known.items() if isinstance(n, int) and not isinstance(n, bool)},
        {name: tuple(map(str, lines)) for name, lines in known.items() if isinstance(lines, tuple) and lines},
    )


def positions_never_go_back(subject: CheckSubject) -> CheckResult:
    """Whether every step back of a position is a RESTORE, or was decided by `kdi resolve`, then or later."""
    if subject.log is None:
        return NO_TABLE
    newest = subject.newest or COMMITS
    walked = walk_back(subject.log, subject.stream.archive_uri(subject.lake) if newest == COMMITS else "")
    commits = list(islice(until_unreadable(walked), newest))[::-1]  # includes commits that a RESTORE undid
    back = steps_back(commits, subject.stream)
    numbers = {"commits_read": len(commits), "steps_back": len(back)}
    if not back:
        return CheckResult("passed", f"no position went back in the newest {len(commits):,} commits", numbers)
    description = f"{back[0]}, without a RESTORE or `kdi resolve`: the offsets after it are drained a second time"
    return CheckResult("error", description, numbers, {"steps back": tuple(back[:20])})


def steps_back(commits: Iterable[CommitInfo], stream: Stream) -> list[str]:
    """The unexplained steps back that no later decision covers.

    Args:
        commits: The oldest first; of other writers' commits the transaction ids are read.
    """
    at: dict[TopicPartition, int] = {}
    found: list[tuple[TopicPartition, str]] = []
    for commit in commits:
        entry = parse_entry(commit.user_metadata, commit.version, stream.app_id)
        positions = dict(entry.positions) if entry else positions_in(commit.transactions, stream)
        if entry and entry.kind == "resolve":
            decided = _decided(entry)
            found = [(tp, step) for tp, step in found if tp not in decided]
        elif not entry or entry.kind != "restore":
            lower = {tp: p for tp, p in sorted(positions.items()) if p != RETIRED and p < at.get(tp, p)}
            found += [(tp, f"v{commit.version} set {tp} back from {at[tp]} to {p}") for tp, p in lower.items()]
        at = {tp: p for tp, p in {**at, **positions}.items() if p != RETIRED}
    return [step for _, step in found]


def _decided(entry: LedgerEntry) -> frozenset[TopicPartition]:
    """The topic partitions whose positions were decided: all, or for a declared loss only those that lost offsets."""
    return frozenset(lost.topic_partition for lost in entry.declared_losses) or frozenset(entry.positions)


def dead_letter_rate(subject: CheckSubject) -> CheckResult:
    """Whether the share of dead letters is above the stream's limit, over the drains of the last 24 hours."""
    drains, limit = subject.drains_since(subject.now - DAY), subject.stream.checks.dead_letter_rate
    letters = sum(c.entry.dead_letters for c in drains)
    messages = sum(c.entry.messages for c in drains)
    share = letters / messages if messages else 0.0
    numbers = {"share": share, "dead_letters": letters, "messages": messages, "limit": limit, "drains": len(drains)}
    description = f"{letters:,} of {messages:,} messages ({share:.2%}) {_of(subject)} became dead letters"
    level = _level(share, limit)
    if level != "passed":
        description += f"; the limit is {limit:.2%}; `kdi dead-letters list {subject.stream.name}` shows why"
    return CheckResult(level, description, numbers)


def _of(subject: CheckSubject) -> str:
    """Of when the messages are that were counted."""
    return f"of the newest {subject.newest:,} commits" if subject.newest else "of the last 24 hours"


def _level(share: float, limit: float) -> Level:
    if share <= limit:
        return "passed"
    return "error" if share >= min(ERROR_FACTOR * limit, max(limit, ERROR_SHARE)) else "warn"


def expectations(subject: CheckSubject) -> CheckResult:
    """Whether the messages of the last 24 hours met every expectation.

    An expectation that stops drains is not counted here: a stopped drain has no ledger entry, its run failed.
    """
    drains = subject.drains_since(subject.now - DAY)
    named = subject.stream.expectations
    unmet = {name: sum(d.entry.unmet.get(name, 0) for d in drains) for name in named}
    became_rows = sum(d.entry.became_rows for d in drains)
    numbers = {**unmet, "became_rows": became_rows, "drains": len(drains)}
    found = {name: count for name, count in unmet.items() if count}
    of = f"{_of(subject)} with {became_rows:,} messages that became rows"
    if not found:
        return CheckResult("passed", f"all expectations were met, {of}", numbers)
    lines = tuple(f"{name}: {count:,}, {named[name].then}: {named[name].sql}" for name, count in found.items())
    description = ", ".join(f"{count:,} messages did not meet {name}" for name, count in found.items())
    return CheckResult("warn", f"{description}, {of}", numbers, {"not met": lines})


def cpu_seconds_a_day(subject: CheckSubject) -> CheckResult:
    """Whether the drains of the current day (UTC) used no more CPU seconds than the budget; only ever warns."""
    if (budget := subject.stream.checks.cpu_seconds_a_day) is None:
        return CheckResult("passed", "the stream has no budget of CPU seconds")
    midnight = subject.now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    drains = subject.drains_since(midnight)
    used = sum(drain.entry.cpu_seconds or 0.0 for drain in drains)
    numbers = {"cpu_seconds": round(used, 3), "budget": budget, "drains": len(drains)}
    description = f"{len(drains):,} drains since 00:00 UTC used {used:,.0f} of the day's {budget:,.0f} CPU seconds"
    if used <= budget:
        return CheckResult("passed", description, numbers)
    return CheckResult("warn", f"{description}; `kdi cost {subject.stream.name} --by day` shows other days", numbers)
