"""Erasure: a person's messages leave every table, and the ledger still accounts for every offset."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.operate.erase.downstream import Downstream, downstream_of, follow_erasure, vacuum_all
from kdi_assets.operate.erase.erase import EraseReport, erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.operate.upkeep.errors import ErasedRowsLeft, EraseRefused
from kdi_assets.streams.ledger.entry import Erasure
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from tests.broker.tables.compacting import held_compaction
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults import others
from tests.refined import refined_table
from tests.tables.served import running_server

DAY = "2026-03-0{day}"
RECORD: dict[str, Any] = {
    "record_ddl": "person string, day string",
    "columns": {"note": "'new'"},
    "coordinates": "kafka",
    "date_expression": "to_date(day)",
}


def message(person: str, day: int = 1) -> str:
    return f'{{"person": "{person}", "day": "{DAY.format(day=day)}"}}'


@pytest.fixture
def people(driven: DrivenFactory) -> DrivenStream:
    """Olga's and Bob's messages on two dates, and one broken message of each; drained in two commits."""
    web = driven(partitions=1, **RECORD)
    web.send(message("olga"), message("bob"), message("olga", 2), '{"person": "olga", "day"')
    web.drain()
    web.send(message("bob", 2), '{"person": "bob", "day"', message("olga", 2))
    web.drain()
    return web


def erased(web: DrivenStream, where: str = "", letters: str = "", **options: Any) -> EraseReport:
    again = options.pop("again", False)
    chosen = EraseFilter(where, letters, again)
    given = {"decided_by": "me", "because": "asked", **options}
    return erase(web.stream, lake=web.lake, session=web.session, chosen=chosen, **given)


OF_OLGA = {"where": "person = 'olga'", "letters": "CAST(value AS STRING) LIKE '%olga%'"}


def stored_bytes(web: DrivenStream) -> bytes:
    """Every data file of the newest versions of the stream's tables, and the archive's and ledger's log."""
    tables = [web.uri, *web.stream.beside_uris(web.lake)]
    files = [f for t in tables if Path(t).exists() for f in DeltaTable(t).file_uris()]
    frames = [str(web.session().read.parquet(f).collect()) for f in files]
    logs = [f.read_bytes() for t in tables for f in Path(t, "_delta_log").glob("*.json")]
    return "".join(frames).encode() + b"".join(logs)


@pytest.mark.core
def test_a_persons_messages_leave_every_table_and_the_audit_closes(people: DrivenStream) -> None:
    web = people
    positions, shown = web.entries()[-1].positions, erased(web, **OF_OLGA, dry_run=True)
    before = web.version()

    done = erased(web, **OF_OLGA)
    audit, newest = web.audit(), web.entries()[-1]
    idle = web.drain()

    assert (shown.committed, shown.version, shown.rows, shown.dead_letters) == (None, before, 3, 1)
    assert {str(day): n for day, n in shown.rows_by_date.items()} == {"2026-03-01": 1, "2026-03-02": 2}
    assert (done.version, newest.kind, newest.positions) == (before + 1, "erase", positions)
    assert [row["person"] for row in web.rows()] == ["bob", "bob"]
    assert [letter["offset"] for letter in web.letters()] == [5]
    assert (audit.complete, audit.offsets, audit.rows, audit.dead_letters, audit.erased) == (True, 7, 2, 1, 4)
    assert audit.offsets == audit.rows + audit.dead_letters + audit.erased
    assert idle.commits == ()
    assert b"olga" not in stored_bytes(web), "neither rows, letters, conditions nor logs name the person"
    assert b"bob" in stored_bytes(web)


def test_the_history_says_who_erased_what_and_why_without_naming_the_person(people: DrivenStream) -> None:
    erased(people, **OF_OLGA)

    newest = next(iter(commit_history(people.stream, people.lake)))

    assert newest.operation == "erase" and newest.entry is not None
    assert newest.description == (
        "3 rows, 1 dead letters of 4 messages: (person = ?) or dead letters: CAST(value AS STRING) LIKE ?"
    )
    assert (newest.entry.decided_by, newest.entry.because) == ("me", "asked")
    assert newest.entry.erasure == Erasure(
        where="(person = ?)",
        letters_where="CAST(value AS STRING) LIKE ?",
        became_rows={people.tp(): 3},
        dead_letters={people.tp(): 1},
        digest=newest.entry.erasure.digest if newest.entry.erasure else 0,
    )


def test_a_replay_of_dates_and_of_letters_brings_nothing_back(people: DrivenStream) -> None:
    web = people
    erased(web, **OF_OLGA)
    first, last = datetime(2026, 3, 1).date(), datetime.now(UTC).date()
    noting = replace(web.stream, columns={"note": "'seen'"})

    replay_dates(noting, lake=web.lake, session=web.session, first=first, last=last)
    replay_letters(noting, lake=web.lake, session=web.session)

    assert [(row["person"], row["note"]) for row in web.rows()] == [("bob", "seen"), ("bob", "seen")]
    assert web.audit().complete
    compared = web.compare()
    assert (compared.changed, compared.absent) == (2, 0), "two notes differ, and erased messages are not missed"


def test_a_rewind_over_erased_messages_is_refused_and_one_after_them_is_not(people: DrivenStream) -> None:
    web = people
    erased(web, **OF_OLGA)
    web.send(message("bob", 2))
    web.drain()

    with pytest.raises(NothingToResolve, match="offset 6 of .* was erased.*\n.*\n.*kdi replay"):
        web.resolve("rewind", topic_partition=web.tp(), to=4)
    web.resolve("rewind", topic_partition=web.tp(), to=7)
    web.drain()

    assert [row["person"] for row in web.rows()] == ["bob"] * 3
    assert web.audit().complete


def test_a_rewind_is_refused_if_the_table_of_erased_offsets_was_left_behind(people: DrivenStream) -> None:
    web, uri = people, Path(people.stream.erased_uri(people.lake))
    erased(web, **OF_OLGA)
    uri.rename(aside := uri.with_name("left_behind"))

    with pytest.raises(
        NothingToResolve, match=f"{uri}, which has their offsets, is not there.*\n.*\n.*kdi replay .* move"
    ):
        web.decide("rewind", topic_partition=web.tp(), to=4)
    aside.rename(uri)
    with pytest.raises(NothingToResolve, match="offset 6 of .* was erased"):
        web.decide("rewind", topic_partition=web.tp(), to=4)


def test_adopt_says_what_no_entry_of_the_table_counts_any_more(people: DrivenStream) -> None:
    """Purpose: dead letters and erased offsets count by entries of the table's log, and another table has none.
    Procedure: erase two rows; adopt under another app_id; put a clone in the place of the table, and adopt that.
    """
    web = people
    erased(web, where=OF_OLGA["where"])
    before = web.decide("rewind", topic_partition=web.tp(), to=7).notes
    renamed = web.with_definition(app_id="another").decide("adopt")
    others.clone(web)

    cloned = web.decide("adopt")

    assert before == ()
    assert cloned.notes == renamed.notes
    assert [note.split(":")[0] for note in cloned.notes] == ["2 dead letters", "3 erased offsets"]


def test_a_restore_brings_erased_rows_back_the_audit_says_so_and_again_erases_them(people: DrivenStream) -> None:
    web = people
    before = web.version()
    erased(web, where="person = 'olga'")
    DeltaTable(web.uri).restore(before)

    with pytest.raises(EraseRefused, match="restored.*\n.*\n.*kdi drain"):
        erased(web, again=True)
    web.drain()
    told = web.audit()
    shown = erased(web, again=True, dry_run=True)
    erased(web, again=True)
    after = web.audit()

    assert told.complete and len(told.notes) == 1 and "a RESTORE undid it: `kdi erase --again`" in told.notes[0]
    assert shown.rows == 3
    assert [row["person"] for row in web.rows()] == ["bob", "bob"]
    assert (after.complete, after.erased, after.notes) == (True, 3, ())
    assert erased(web, again=True).committed is None


def test_a_process_that_ends_before_the_letters_are_deleted_leaves_letters_that_nobody_reads(
    people: DrivenStream,
) -> None:
    web = people

    with pytest.raises(Crash):
        erased(web, **OF_OLGA, at=Once("commit sent", crash))
    between = web.audit()
    report = replay_letters(web.stream, lake=web.lake, session=web.session, dry_run=True)
    erased(web, again=True)
    after = web.audit()

    assert between.complete
    assert sum(report.outcomes.values()) == 1, "only Bob's letter is open"
    assert b"olga" not in stored_bytes(web)
    assert (after.complete, after.dead_letters, after.erased) == (True, 1, 4)


def test_a_command_after_a_kill_says_that_letters_of_erased_rows_are_left(people: DrivenStream) -> None:
    """Purpose: the rows that the condition names are gone, and "nothing meets the condition" sounds as if all were.
    Procedure: a dead letter becomes a row by a replay; erase the row, and end the process before the letter is deleted.
    """
    web, of_olga = people, OF_OLGA["where"]
    web.send('{"person": "olga", "day": "never"}')
    web.drain()
    dated = replace(web.stream, date_expression="DATE'2026-03-03'")
    replay_letters(dated, lake=web.lake, session=web.session)

    with pytest.raises(Crash):
        erased(web, of_olga, at=Once("commit sent", crash))
    found = erased(web, of_olga)
    left = b"never" in stored_bytes(web)
    erased(web, again=True)

    assert (found.committed, found.left_letters) == (None, 2), "of the letter, and of its replay"
    assert left and b"never" not in stored_bytes(web)
    assert erased(web, of_olga).left_letters == 0


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("point", ["files written", "commit sent"])
def test_a_drain_with_dead_letters_at_any_point_of_an_erasure_loses_nothing(people: DrivenStream, point: str) -> None:
    web = people
    web.send(message("olga"), message("bob"), '{"person": "bob"')

    done = erased(web, **OF_OLGA, at=Once(point, lambda: web.drain()))
    audit = web.audit()
    rest = erased(web, **OF_OLGA)

    assert done.committed is not None
    assert (audit.complete, audit.offsets, audit.erased) == (True, 10, 4)
    assert rest.rows == 1, "what was drained meanwhile is another erasure's"
    assert web.audit().complete
    assert [row["person"] for row in web.rows()] == ["bob"] * 3


def test_a_drain_in_flight_commits_over_an_erasure(people: DrivenStream) -> None:
    web = people
    web.send(message("bob"), '{"person": "bob"')

    report = web.drain(at=Once("dead letters written", lambda: erased(web, **OF_OLGA)))

    assert len(report.commits) == 1
    assert (web.audit().complete, web.audit().erased) == (True, 4)
    assert [row["person"] for row in web.rows()] == ["bob"] * 3


def test_dead_letters_above_the_positions_are_those_of_the_drain_that_reads_their_messages_again(
    people: DrivenStream,
) -> None:
    """Purpose: after a rewind, a drain in flight writes letters of the same messages, which no erasure may delete.
    Procedure: rewind to before the broken messages, erase when the drain has written them again, and once more later.
    """
    web, letters = people, OF_OLGA["letters"]
    web.resolve("rewind", topic_partition=web.tp(), to=2)

    web.drain(at=Once("dead letters written", lambda: erased(web, letters=letters)))
    audit = web.audit()
    later = erased(web, letters=letters)

    assert (audit.complete, audit.dead_letters, audit.erased) == (True, 2, 0)
    assert (later.dead_letters, web.audit().complete, web.audit().erased) == (1, True, 1)


def test_a_message_with_several_rows_is_erased_as_a_whole(driven: DrivenFactory) -> None:
    exploding = {"record_ddl": "people array<string>, day string", "explode": Explode("person", "people")}
    web = driven(partitions=1, **{**RECORD, **exploding})
    web.send('{"people": ["olga", "bob"], "day": "2026-03-01"}', '{"people": ["bob", "eve"], "day": "2026-03-01"}')
    web.drain()

    done = erased(web, where="person = 'olga'")

    assert (done.rows, done.messages) == (2, 1)
    assert sorted(row["person"] for row in web.rows()) == ["bob", "eve"]
    assert (web.audit().complete, web.audit().erased) == (True, 1)


def test_vacuum_removes_every_file_that_held_the_rows(people: DrivenStream) -> None:
    web = people
    folders = [Path(web.uri), Path(web.stream.dead_letters_uri(web.lake))]

    def files() -> set[Path]:
        return {f for folder in folders for f in folder.rglob("*.parquet") if "_delta_log" not in f.parts}

    before = files()
    erased(web, **OF_OLGA)
    vacuumed = vacuum_all(web.session, web.stream, Downstream(), web.lake)
    after = files()

    assert vacuumed.files >= len(before - after) > 0
    held = "".join(str(web.session().read.parquet(str(f)).collect()) for f in after)
    assert "bob" in held and "olga" not in held
    assert web.audit().complete


VISITS = refined_table(
    **{
        "table": "silver/visits",
        "from": "bronze/TABLE",
        "sql": "SELECT person, date, note FROM visit",
        "mode": "append",
    }
)
NEWEST = {"keys": ["person"], "sequence_by": "kafka.offset", "apply_as_deletes": "person = 'olga' AND kafka.offset = 6"}


def test_a_person_leaves_bronze_silver_gold_and_the_database_and_no_file_holds_a_byte_of_them(
    people: DrivenStream, tmp_path: Path
) -> None:
    """Purpose: an erasure reaches all that is made of a stream.
    Procedure: bronze to silver (append, and an upsert with a remembered delete of the person) to gold (append, and
    counts) to PostgreSQL; erase the person, then the database is away and comes back; VACUUM.
    Pass: no table has a row of the person, nor has any Parquet file below the lake; the others' rows are all there; the
    audit closes; the table that cannot be reached is named, and the same command brings it up to date.
    """
    web = people
    upstream = {"table": web.stream.table, "as": "visit"}
    silver = replace(VISITS, upstreams=refined_table(table="x", **{"from": [upstream]}).upstreams)
    newest = refined_table(
        **{"table": "silver/newest", "from": [upstream], "partition_by": None, "mode": {"upsert": NEWEST}}
    )
    gold = refined_table(**{"table": "gold/visits", "from": "silver/visits"})
    counts = {"aggregate": {"by": ["date", "person"], "measures": {"visits": "count"}}}
    daily = refined_table(**{"table": "gold/daily", "from": "silver/visits", "mode": counts})
    other = refined_table(**{"table": "gold/other", "from": "silver/elsewhere"})
    with running_server() as server:
        copy = ServedTableSpec("gold/daily", Postgres("daily", url=server.url), ("date", "person"))
        away = replace(copy, into=Postgres("away", url="postgresql://nobody@127.0.0.1:1/nowhere"))
        chain = downstream_of(web.stream, [daily, gold, newest, silver, other], [copy, away], lake=web.lake)
        following: dict[str, Any] = {
            "lake": web.lake,
            "session": web.session,
            "where": OF_OLGA["where"],
            "home": tmp_path,
        }
        before = {f.table: f for f in follow_erasure(chain, **following)}
        held_before = held(web)
        erased(web, **OF_OLGA)
        after = {f.table: f for f in follow_erasure(chain, **following)}
        again = {f.table: f for f in follow_erasure(chain, **following)}
        vacuum_all(web.session, web.stream, chain, web.lake)
        with psycopg.connect(server.url) as connection:
            served = connection.execute("SELECT person, sum(visits) FROM daily GROUP BY person").fetchall()

    assert chain.names == (*(t.name for t in chain.refined), copy.name, away.name) and other not in chain.refined
    assert {t.name for t in chain.refined} == {"silver/visits", "silver/newest", "gold/visits", "gold/daily"}
    assert "olga" in held_before and isinstance(before["gold/daily"].error, ErasedRowsLeft)
    assert {name: f.rows_left for name, f in after.items() if f.rows_left is not None} == {
        t.name: 0 for t in chain.refined
    }
    assert [name for name, f in again.items() if f.error] == [away.name]
    assert "bob" in held(web) and "olga" not in held(web)
    assert served == [("bob", 2)]
    assert web.audit().complete


def held(web: DrivenStream) -> str:
    """The values of every Parquet file of the lake, whether a version has it or not, but for logs' checkpoints."""
    files = [f for f in Path(web.lake).rglob("*.parquet") if "_delta_log" not in f.parts]
    return "".join(str(web.session().read.parquet(str(f)).collect()) for f in files)


@pytest.mark.parametrize(
    ("chosen", "refusal"),
    [
        ({"where": "nobody = 1"}, "--where is wrong: .*nobody"),
        ({"where": "person ="}, "--where is wrong"),
        ({"letters": "nobody = 1"}, "--dead-letters-where is wrong"),
    ],
)
def test_a_wrong_condition_is_refused(people: DrivenStream, chosen: dict[str, str], refusal: str) -> None:
    version = people.version()

    with pytest.raises(EraseRefused, match=refusal):
        erased(people, **chosen)

    assert people.version() == version


def test_upkeep_and_an_erasure_overtake_each_other(people: DrivenStream) -> None:
    """Purpose: a compaction must not bring back rows that an erasure removed from the files that it joins."""
    web = people
    with held_compaction(web, later=timedelta(hours=7)) as outcome:
        erased(web, **OF_OLGA)
    (done,) = outcome

    assert done.all_errors
    assert [row["person"] for row in web.rows()] == ["bob", "bob"]
    assert web.audit().complete
