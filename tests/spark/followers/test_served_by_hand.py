"""What someone does to the served table in PostgreSQL: changes by hand are refused with the statement, rights stay."""

from __future__ import annotations

import pytest

from kdi_assets.follow.serve.errors import DatabaseBusy, RowsDisagree, RowSecurityOn, TableAlteredByHand, TableNotOurs
from tests.tables.served import ServedDelta, on_reaching

pytestmark = pytest.mark.usefixtures("interpreted_module")


@pytest.mark.parametrize(
    ("by_hand", "said", "run"),
    [
        ("ALTER TABLE {t} DROP COLUMN name", "column name was dropped", "--rebuild"),
        ("ALTER TABLE {t} ALTER COLUMN n TYPE text", "column n is text", 'ALTER COLUMN "n" TYPE bigint'),
        ("ALTER TABLE {t} DROP CONSTRAINT numbers_pkey", "no primary key", 'ADD PRIMARY KEY ("id")'),
        ("ALTER TABLE {t} ADD COLUMN note text", "has no column note", 'DROP COLUMN "note"'),
    ],
)
def test_a_table_altered_by_hand_is_refused_with_the_statement_and_a_rebuild_mends_it(
    numbers: ServedDelta, by_hand: str, said: str, run: str
) -> None:
    numbers.serve()
    numbers.query("GRANT SELECT ON {t} TO pg_monitor")
    numbers.query(by_hand)
    numbers.sql("UPDATE {t} SET n = 0")

    with pytest.raises(TableAlteredByHand) as refused:
        numbers.serve()

    happened, _, command = refused.value.message_parts()
    assert said in happened
    assert run in command
    assert numbers.consumed() == 1
    assert (numbers.serve(rebuild=True).kind, numbers.consumed()) == ("load", 2)
    numbers.assert_served()
    rights = "SELECT has_table_privilege('pg_monitor', 'test.numbers', 'SELECT') AS may"
    assert numbers.query(rights) == [{"may": True}]


def test_rows_changed_by_hand_are_noticed_and_nothing_is_published(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.query("DELETE FROM {t} WHERE id = 5")
    numbers.sql("UPDATE {t} SET n = 0 WHERE id < 10")
    before = numbers.rows()

    with pytest.raises(RowsDisagree, match="10 keys had to have a row, and 9 did"):
        numbers.serve()

    assert (numbers.rows(), numbers.consumed()) == (before, 1)
    assert numbers.serve(rebuild=True).kind == "difference"
    numbers.assert_served()


def test_a_table_that_no_run_of_ours_made_is_not_touched(numbers: ServedDelta) -> None:
    numbers.query("CREATE SCHEMA test")
    numbers.query("CREATE TABLE {t} AS SELECT 1 AS theirs")

    with pytest.raises(TableNotOurs, match='DROP TABLE "test"."numbers"'):
        numbers.serve()
    with pytest.raises(TableNotOurs):
        numbers.serve(rebuild=True)

    assert numbers.query("SELECT * FROM {t}") == [{"theirs": 1}]


def test_a_table_that_another_session_locks_is_served_later(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.sql("DELETE FROM {t} WHERE id < 50")

    with numbers.connect() as theirs, theirs.transaction():
        theirs.execute("LOCK TABLE test.numbers IN ACCESS SHARE MODE")
        numbers.serve()  # readers are in nobody's way
        numbers.sql("DELETE FROM {t} WHERE id < 60")
        theirs.execute("LOCK TABLE test.numbers IN SHARE MODE")
        with pytest.raises(DatabaseBusy, match="lock timeout"), pytest.MonkeyPatch.context() as patch:
            patch.setattr("kdi_assets.follow.serve.postgres.connection.LOCK_MILLISECONDS", 100)
            numbers.serve()

    numbers.serve()
    numbers.assert_served()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE POLICY few ON {t} TO pg_monitor USING (id < 10)", "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"],
        ["ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"],
        ["CREATE POLICY few ON {t} TO pg_monitor USING (id < 10)"],
    ],
    ids=["policy", "no policy", "policy that is off"],
)
def test_a_table_with_row_level_security_is_not_replaced_by_one_without_it(
    numbers: ServedDelta, statements: list[str]
) -> None:
    """Pass: changes are served, a load is refused and readers see no other rows; dropping the table is the way out."""
    numbers.serve()
    for statement in [*statements, "GRANT SELECT ON {t} TO pg_monitor"]:
        numbers.query(statement)
    numbers.sql("UPDATE {t} SET n = 0 WHERE id < 50")
    assert numbers.serve().kind == "changes"
    numbers.query("ALTER TABLE {t} DROP COLUMN name")

    with pytest.raises(RowSecurityOn, match='DROP TABLE "test"."numbers"'):
        numbers.serve(rebuild=True)

    security = (
        "SELECT relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid) AS on FROM pg_class"
    )
    assert numbers.query(f"{security} WHERE oid = '{{t}}'::regclass") == [{"on": True}]
    assert (numbers.consumed(), numbers.staging_tables()) == (2, [])
    numbers.query("DROP TABLE {t}")
    numbers.serve()
    numbers.assert_served()
    rights = "SELECT has_table_privilege('pg_monitor', '{t}', 'SELECT') AS may"
    assert numbers.query(rights) == [{"may": False}], "nobody reads it before the policies are there again"


def test_row_level_security_that_is_switched_on_while_rows_are_staged_stops_the_load(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.query("ALTER TABLE {t} DROP COLUMN name")

    with pytest.raises(RowSecurityOn):
        numbers.serve(
            rebuild=True,
            at=on_reaching("staged", lambda: numbers.query("ALTER TABLE {t} ENABLE ROW LEVEL SECURITY")),
        )

    assert (numbers.consumed(), numbers.staging_tables()) == (1, [])


def test_rights_on_columns_and_the_right_to_grant_stay_when_the_table_is_replaced(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.query("GRANT SELECT (id, n) ON {t} TO pg_monitor")
    numbers.query("GRANT SELECT (name) ON {t} TO PUBLIC")
    numbers.query("GRANT UPDATE (n) ON {t} TO pg_read_all_stats WITH GRANT OPTION")
    numbers.query("GRANT SELECT ON {t} TO pg_signal_backend WITH GRANT OPTION")
    numbers.query("ALTER TABLE {t} DROP COLUMN name")
    rights = """SELECT has_column_privilege('pg_monitor', '{t}', 'id', 'SELECT') AS id,
                  has_column_privilege('pg_monitor', '{t}', 'n', 'SELECT') AS n,
                  has_table_privilege('pg_monitor', '{t}', 'SELECT') AS whole,
                  has_column_privilege('pg_read_all_stats', '{t}', 'n', 'UPDATE WITH GRANT OPTION') AS may_grant,
                  has_table_privilege('pg_signal_backend', '{t}', 'SELECT WITH GRANT OPTION') AS may_grant_all"""
    before = numbers.query(rights)

    assert numbers.serve(rebuild=True).kind == "load"

    assert before == [{"id": True, "n": True, "whole": False, "may_grant": True, "may_grant_all": True}]
    assert numbers.query(rights) == before
    others = "SELECT has_column_privilege('pg_monitor', '{t}', 'name', 'SELECT') AS name"
    assert numbers.query(others) == [{"name": False}], "a column that was dropped had no rights left to copy"


def test_a_column_of_another_type_upstream_is_refused_with_the_statement(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')")
    numbers.sql("ALTER TABLE {t} DROP COLUMN name")

    with pytest.raises(TableAlteredByHand, match="has no column name") as refused:
        numbers.serve()

    statement = refused.value.statements[0]
    assert statement == 'ALTER TABLE "test"."numbers" DROP COLUMN "name";'
    numbers.query(statement)
    numbers.serve()
    numbers.assert_served()
