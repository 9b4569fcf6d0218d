"""The publishing transaction: rows and consumed version become visible together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.follow.serve.errors import KeysNotUnique, NullServedKeys, PublishedMeanwhile, RowsDisagree
from kdi_assets.follow.serve.postgres.served_versions import ConsumedVersion, read_consumed, write_consumed
from kdi_assets.follow.serve.postgres.staging import Staging, one_row
from kdi_assets.follow.serve.postgres.target_table import (
    Expected,
    TargetTable,
    read_target_table,
    refuse_row_security,
    refuse_table_of_others,
    table_rights,
)

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable, Composed, Identifier


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """What a publishing transaction did."""

    upserted: int = 0
    deleted: int = 0
    columns_added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes the rows of one attempt.

    Attributes:
        consumed: What the database said when this attempt was planned; it must still say so.
        source: The Delta table's path or URI, for ``kdi_served``.
        table_id, version: What is consumed afterwards.
        definition: Digest of the document.
        at: Called with the name of each point that was reached; for tests.
    """

    connection: psycopg.Connection
    expected: Expected
    consumed: ConsumedVersion | None
    source: str
    table_id: str
    version: int
    definition: str
    attempt: str
    at: Callable[[str], None]

    def version_only(self) -> PublishedRows:
        """Record a version without changed rows, perhaps with other columns."""
        with self._transaction():
            added = self._fit_table()
        return PublishedRows(columns_added=added)

    def changes(self, staging: Staging) -> PublishedRows:
        """Delete and upsert the staged changes.

        Raises:
            NullServedKeys, KeysNotUnique: Keys of the Delta table are null, or not unique.
            RowsDisagree: A changed key does not have a row, or a new key has one.
            TableAlteredByHand: The table is not as it was made.
            PublishedMeanwhile: Another run was first.
        """
        self._refuse_null_keys(staging)
        new, changed, removed, passing = self._expected_counts(staging)
        with self._keys_hit_once(staging), self._transaction():
            added = self._fit_table()
            deleted = self._delete(staging) if removed or passing else 0
            inserted, updated = self._upsert(staging)
            if (inserted, updated, deleted) != (new, changed, removed):
                raise self._disagreement((inserted, updated, deleted), (new, changed, removed))
        return PublishedRows(inserted + updated, deleted, added)

    def difference(self, staging: Staging) -> PublishedRows:
        """Make the table equal to the staged rows of a whole version; rows that are equal are not touched.

        Raises: As ``changes``, except ``RowsDisagree``.
        """
        self._refuse_null_keys(staging)
        # Before the rows that are equal are left out: of two rows with one key, one may be equal.
        (twice,) = self._row(
            "SELECT EXISTS (SELECT FROM {} GROUP BY {} HAVING count(*) > 1)", staging.table, self._keys()
        )
        if twice:
            raise self._several(staging)
        with self._keys_hit_once(staging), self._transaction():
            added = self._fit_table()
            same_key = self._same_key()
            gone = "DELETE FROM {} t WHERE NOT EXISTS (SELECT FROM {} s WHERE {})"
            deleted = self._execute(gone, self._table, staging.table, same_key).rowcount
            where = "WHERE NOT EXISTS (SELECT FROM {} t WHERE {} AND ROW({}) IS NOT DISTINCT FROM ROW({}))"
            equal = self._format(where, self._table, same_key, self._columns("t"), self._columns("s"))
            inserted, updated = self._upsert(staging, equal)
        return PublishedRows(inserted + updated, deleted, added)

    def load(self, staging: Staging) -> PublishedRows:
        """Put the staged table, which has all rows of a version, in the place of the old one.

        Raises:
            NullServedKeys, KeysNotUnique: Keys of the Delta table are null, or not unique.
            TableNotOurs: No run of ours made the table that is there.
            DependentObjects: Views or keys depend on the old table.
            RowSecurityOn: The old table has row-level security.
            PublishedMeanwhile: Another run was first.
        """
        self._refuse_null_keys(staging)
        self._add_primary_key(staging)
        rows = staging.count(self.connection)
        with self._transaction():
            old = self._found()
            if self.consumed is None:
                refuse_table_of_others(self.expected.target, self.expected.schema, self.expected.table, old)
            if old is not None:
                # Nobody may grant a right or create a policy between these looks and the new table.
                self._execute("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", self._table)
                refuse_row_security(self.connection, self.expected)
                self._copy_rights(staging)
                self._execute("DROP TABLE {}", self._table)
            self._execute("ALTER TABLE {} RENAME TO {}", staging.table, self._identifier(self.expected.table))
            names = [self._identifier(f"{name}_pkey") for name in (staging.name, self.expected.table)]
            index = self._identifier(self.expected.schema, f"{staging.name}_pkey")
            self._execute("ALTER INDEX {} RENAME TO {}", index, names[1])
        self._execute("ANALYZE {}", self._table)  # a new table has no statistics, and queries would be planned badly
        return PublishedRows(upserted=rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction in which the consumed version is still the planned one, and then the new one."""
        of = self.expected
        with self.connection.transaction():
            # The row's lock is held until the commit: a second run waits here, then sees a newer version and gives up.
            if read_consumed(self.connection, of.schema, of.table, lock=True) != self.consumed:
                raise PublishedMeanwhile
            yield
            write_consumed(
                self.connection,
                of.schema,
                of.table,
                source=self.source,
                table_id=self.table_id,
                version=self.version,
                definition=self.definition,
                columns=of.columns,
                attempt=self.attempt,
            )
            self.at("publishing")

    def _found(self) -> TargetTable | None:
        return read_target_table(self.connection, self.expected.schema, self.expected.table)

    def _fit_table(self) -> tuple[str, ...]:
        """Lock the table against other writers and add the Delta table's new columns."""
        from psycopg import sql

        self._execute("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", self._table)
        found = self._found()
        if found is None:
            raise PublishedMeanwhile  # dropped since this run was planned
        new = self.expected.columns_to_add(found)
        for name, type_ in new.items():
            self._execute("ALTER TABLE {} ADD COLUMN {} {}", self._table, self._identifier(name), sql.SQL(type_))
        return tuple(new)

    def _refuse_null_keys(self, staging: Staging) -> None:
        null = self._joined(" OR ", [self._format("{} IS NULL", self._identifier(key)) for key in self.expected.keys])
        # Of changes there is one for each key.
        count = self._format("coalesce(sum(_kdi_net), 0)::bigint" if staging.changes else "count(*)")
        (rows,) = self._row("SELECT {} FROM {} WHERE {}", count, staging.table, null)
        if rows:
            raise NullServedKeys(target=self.expected.target, keys=tuple(self.expected.keys), rows=rows)

    def _expected_counts(self, staging: Staging) -> tuple[int, int, int, int]:
        """How many keys get a row, keep one, lose it, and came and went, if the database has the consumed version.

        A key that came and went had no row and has none. A row of the database for it shows that the Delta table had
        two rows for it meanwhile, and that the one that stayed is not told by the changes.
        """
        query = """SELECT count(*) FILTER (WHERE _kdi_net NOT BETWEEN -1 AND 1),
                   count(*) FILTER (WHERE _kdi_present AND _kdi_net = 1),
                   count(*) FILTER (WHERE _kdi_present AND _kdi_net = 0),
                   count(*) FILTER (WHERE NOT _kdi_present AND _kdi_net = -1),
                   count(*) FILTER (WHERE NOT _kdi_present AND _kdi_net = 0),
                   count(*) FILTER (WHERE _kdi_present AND _kdi_net = -1 OR NOT _kdi_present AND _kdi_net = 1)
                   FROM {}"""
        several, new, changed, removed, passing, contradictory = self._row(query, staging.table)
        if several or contradictory:
            query = """SELECT {} FROM {} WHERE _kdi_net NOT BETWEEN -1 AND 1 OR _kdi_present AND _kdi_net = -1
                       OR NOT _kdi_present AND _kdi_net = 1 LIMIT 1"""
            raise self._not_unique(several + contradictory, self._row(query, self._keys(), staging.table))
        return new, changed, removed, passing

    def _delete(self, staging: Staging) -> int:
        query = "DELETE FROM {} t USING {} s WHERE NOT s._kdi_present AND {}"
        return self._execute(query, self._table, staging.table, self._same_key()).rowcount

    def _upsert(self, staging: Staging, where: Composable | None = None) -> tuple[int, int]:
        """Insert or update; how many were inserted, and how many updated."""
        sets = [self._format("{0} = EXCLUDED.{0}", self._identifier(name)) for name in self.expected.columns]
        query = """WITH done AS (
                     INSERT INTO {} ({}) SELECT {} FROM {} s {} ON CONFLICT ({}) DO UPDATE SET {}
                     RETURNING (xmax = 0) AS inserted)
                   SELECT count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted) FROM done"""
        only = where or self._format("WHERE s._kdi_present" if staging.changes else "")
        columns = self._columns()
        parts = (self._table, columns, columns, staging.table, only, self._keys(), self._joined(", ", sets))
        inserted, updated = self._row(query, *parts)
        return inserted, updated

    def _disagreement(self, did: tuple[int, ...], planned: tuple[int, ...]) -> RowsDisagree:
        texts = [
            f"{expected:,} keys {what}, and {found:,} did"
            for expected, found, what in zip(
                planned, did, ("had to be new", "had to have a row", "had to have a row to delete"), strict=True
            )
            if expected != found
        ]
        detail = "; ".join(texts) + ". Rows were changed by hand, or several rows of the Delta table have the same keys"
        version = self.consumed.version if self.consumed else -1
        return RowsDisagree(target=self.expected.target, version=version, detail=detail)

    def _add_primary_key(self, staging: Staging) -> None:
        import psycopg

        self.connection.execute("SET maintenance_work_mem = '256MB'")
        try:
            self._execute("ALTER TABLE {} ADD PRIMARY KEY ({})", staging.table, self._keys())
        except psycopg.errors.UniqueViolation as twice:
            raise self._several(staging) from twice

    @contextmanager
    def _keys_hit_once(self, staging: Staging) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.errors.CardinalityViolation as twice:  # ON CONFLICT would update a row twice
            raise self._several(staging) from twice

    def _several(self, staging: Staging) -> KeysNotUnique:
        keys = self._keys()
        query = "SELECT count(*) FROM (SELECT FROM {} GROUP BY {} HAVING count(*) > 1) AS several"
        (count,) = self._row(query, staging.table, keys)
        example = self._row("SELECT {} FROM {} GROUP BY {} HAVING count(*) > 1 LIMIT 1", keys, staging.table, keys)
        return self._not_unique(count, example)

    def _not_unique(self, count: int, example: Sequence[object]) -> KeysNotUnique:
        return KeysNotUnique(
            target=self.expected.target,
            keys=tuple(self.expected.keys),
            count=count,
            example="(" + ", ".join(str(value)[:100] for value in example) + ")",
        )

    def _copy_rights(self, staging: Staging) -> None:
        """Give the new table the rights that others have on the old one and on its columns."""
        from psycopg import sql

        for grantee, right, column, option in table_rights(self.connection, self.expected):
            if column is not None and column not in self.expected.columns:
                continue  # the new table does not have it
            of_column = self._format(" ({})", self._identifier(column)) if column is not None else self._format("")
            may_grant = sql.SQL(" WITH GRANT OPTION" if option else "")
            parts = sql.SQL(right), of_column, staging.table, sql.SQL(grantee), may_grant
            self._execute("GRANT {}{} ON {} TO {}{}", *parts)

    @property
    def _table(self) -> Identifier:
        return self._identifier(self.expected.schema, self.expected.table)

    def _keys(self) -> Composable:
        return self._joined(", ", [self._identifier(key) for key in self.expected.keys])

    def _columns(self, of: str = "") -> Composable:
        """The columns' names, with an alias before them if there is one."""
        names = self.expected.columns
        return self._joined(", ", [self._identifier(of, name) if of else self._identifier(name) for name in names])

    def _same_key(self) -> Composable:
        """Whether a row ``t`` and a staged row ``s`` have the same keys."""
        pairs = [(self._identifier("t", key), self._identifier("s", key)) for key in self.expected.keys]
        return self._joined(" AND ", [self._format("{} = {}", *pair) for pair in pairs])

    def _identifier(self, *names: str) -> Identifier:
        from psycopg import sql

        return sql.Identifier(*names)

    def _joined(self, between: str, parts: Sequence[Composable]) -> Composable:
        from psycopg import sql

        return sql.SQL(between).join(parts)

    def _format(self, query: str, *parts: Composable) -> Composed:
        from psycopg import sql

        return sql.SQL(query).format(*parts)

    def _execute(self, query: str, *parts: Composable) -> psycopg.Cursor[Any]:
        return self.connection.execute(self._format(query, *parts))

    def _row(self, query: str, *parts: Composable) -> tuple[Any, ...]:
        return one_row(self.connection, query, *parts)
