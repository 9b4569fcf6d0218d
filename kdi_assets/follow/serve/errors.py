"""Errors of served tables."""

from __future__ import annotations

from kdi_assets.errors import Terminal, Transient

UNCHANGED = "the table in the database is unchanged; it has the rows of one version of the Delta table."


class SourceMissing(Transient):
    """The Delta table does not exist yet."""

    target: str
    uri: str

    what_happened = "{target}: there is no Delta table at {uri}."
    what_is_safe = UNCHANGED
    what_to_run = "kdi status; then kdi serve {target}   (first the drain or refinement that makes it)"


class SourceGone(Terminal):
    """The Delta table does not exist, and it was served before."""

    target: str
    uri: str
    version: int

    what_happened = "{target}: version {version} of a Delta table is served, and there is no Delta table at {uri}."
    what_is_safe = UNCHANGED
    what_to_run = (
        "kdi serve {target}   (first put the Delta table back, or correct its path in the document; the rows of a new "
        "table at the place that was served take the place of those that are served)"
    )


class ServedFromElsewhere(Terminal):
    """The rows come from another table below another root: another environment serves into the same table."""

    target: str
    uri: str
    other: str

    what_happened = (
        "{target}: the rows that are served come from the Delta table at {other}; the one at {uri} is another table."
    )
    what_is_safe = UNCHANGED
    what_to_run = (
        "kdi serve {target} --rebuild   (only if nothing serves {other} any more; otherwise first give each "
        "environment a database of its own: another url, file or KDI_HOME)"
    )


class DatabaseUnavailable(Transient):
    """The database does not answer, or it ended the connection."""

    target: str
    server: str
    detail: str

    what_happened = "{target}: the database {server} is not available: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}    (it serves all that changed meanwhile)"


class DatabaseBusy(Transient):
    """Another session holds a lock that is needed."""

    target: str
    server: str
    detail: str

    what_happened = "{target}: another session of {server} holds a lock on the table: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (if it repeats, SELECT * FROM pg_stat_activity shows who holds it)"


class AnotherServeRunActive(Transient):
    """Other runs published first, too often in a row."""

    target: str

    what_happened = "{target}: another run serves this table at the same time, and published first."
    what_is_safe = "this attempt changed nothing; rows and version are those of the other run."
    what_to_run = "kdi serve {target}"


class PublishedMeanwhile(Exception):
    """Another run published after this one had planned; the caller plans again, so nobody sees this one."""


class ReadFailed(Transient):
    """The rows could not be read or copied."""

    target: str
    detail: str

    what_happened = "{target}: the rows could not be read or copied: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}"


class ReadForbidden(Terminal):
    """The storage of the Delta table refuses to be read, and will refuse it again: a right is missing, or room."""

    target: str
    detail: str
    needs: str

    what_happened = "{target}: the rows could not be read or copied: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (once {needs})"


class StagedRowsMissing(Transient):
    """The staging table does not have the rows that were copied into it."""

    target: str
    copied: int
    found: int

    what_happened = "{target}: {copied:,} rows were copied into the staging table, and it has {found:,}."
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}"


class AddressWrong(Terminal):
    """The URL of the database is not one; the text does not show it, because it may hold a password."""

    target: str

    what_happened = "{target}: the url of the document, or the value that it refers to, is not a PostgreSQL address."
    what_is_safe = "no request was sent."
    what_to_run = "kdi serve {target}   (first correct it: postgresql://user@host:port/database)"


class DatabaseRefuses(Terminal):
    """The database refuses the user, the statement or the rows."""

    target: str
    server: str
    detail: str
    mend: str

    what_happened = "{target}: the database {server} refuses: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (first {mend})"


class ValueNotStorable(Terminal):
    """A value of the Delta table cannot be stored in the database."""

    target: str
    detail: str
    mend: str = "change the value upstream, or leave its column out by `columns`"

    what_happened = "{target}: a value of the Delta table cannot be stored in the database: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (first {mend})"


class ColumnNotServed(Terminal):
    """A column has a type that has no counterpart, or it does not exist."""

    target: str
    column: str
    reason: str

    what_happened = "{target}: column {column} cannot be served: {reason}."
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (first name the columns to serve by `columns`, or cast it upstream)"


class NullServedKeys(Terminal):
    """Rows have a null in a key column."""

    target: str
    keys: tuple[str, ...]
    rows: int

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.target}: {self.rows:,} rows have NULL in a key column ({', '.join(self.keys)}).",
            UNCHANGED,
            f"kdi serve {self.target}   (first name other `keys`, or remove these rows upstream)",
        )


class KeysNotUnique(Terminal):
    """Several rows of the Delta table have the same keys."""

    target: str
    keys: tuple[str, ...]
    count: int
    example: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.target}: {self.count:,} keys ({', '.join(self.keys)}) have several rows in the Delta table, such "
            f"as {self.example}.",
            UNCHANGED,
            f"kdi serve {self.target}   (first name `keys` that are unique, or serve a refined table with mode upsert)",
        )


class RowsDisagree(Terminal):
    """The rows in the database are not those of the version that was consumed."""

    target: str
    version: int
    detail: str

    what_happened = (
        "{target}: the rows in the database are not those of version {version}, which it recorded as consumed: {detail}"
    )
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target} --rebuild    (compares all rows, and changes those that differ)"


class TableAlteredByHand(Terminal):
    """The table in the database does not have the columns or the primary key that it was made with."""

    target: str
    differences: tuple[str, ...]
    statements: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.target}: the table in the database differs from the Delta table: {'; '.join(self.differences)}.",
            UNCHANGED,
            "; or ".join(filter(None, (" ".join(self.statements), f"kdi serve {self.target} --rebuild"))),
        )


class TableNotOurs(Terminal):
    """The database has a table, view or index with the name, and it was not made by us."""

    target: str
    found: str
    statement: str

    what_happened = "{target}: the database has a {found} with this name, and no run of ours made it."
    what_is_safe = "it was not touched."
    what_to_run = (
        "kdi serve --all   (first give the document another table name; only if nobody needs the {found} that is "
        "there: {statement})"
    )


class DependentObjects(Terminal):
    """Views or keys depend on a table that must be replaced by a new one."""

    target: str
    detail: str

    what_happened = "{target}: the table must be replaced by a new one, and other objects depend on it: {detail}"
    what_is_safe = UNCHANGED
    what_to_run = "kdi serve {target}   (first drop these objects, and create them again after it)"


class RowSecurityOn(Terminal):
    """A table with row-level security must be replaced by a new one, which would not have it."""

    target: str
    policies: tuple[str, ...]
    statement: str

    def message_parts(self) -> tuple[str, str, str]:
        policies = f"the policies {', '.join(self.policies)}" if self.policies else "no policy"
        return (
            f"{self.target}: the table must be replaced by a new one, and it has row-level security, with {policies}: "
            "readers would see all rows of the new one.",
            UNCHANGED,
            f"{self.statement}; then kdi serve {self.target}   (makes a table that nobody else may read: enable "
            "row-level security, create the policies and grant the rights again)",
        )


class FeaturesNotRead(Terminal):
    """delta-rs cannot read the Delta table, and a DuckDB file is filled by it."""

    target: str
    detail: str

    what_happened = "{target}: delta-rs, which fills DuckDB files, cannot read the Delta table: {detail}"
    what_is_safe = "the file is unchanged; it has the rows of one version of the Delta table."
    what_to_run = (
        "kdi serve {target}   (first serve it from PostgreSQL, which Spark fills, or drop the feature from the table)"
    )


class FileNotOurs(Terminal):
    """The DuckDB file cannot be used."""

    target: str
    file: str
    detail: str

    what_happened = "{target}: {file} cannot be used: {detail}"
    what_is_safe = "the file is unchanged."
    what_to_run = "kdi serve {target}   (first name another file in the document)"


class FileLocked(Transient):
    """Another process has the DuckDB file open."""

    target: str
    file: str
    detail: str

    what_happened = "{target}: another process has {file} open: {detail}"
    what_is_safe = "the file is unchanged; it has the rows of one version of the Delta table."
    what_to_run = "kdi serve {target}   (first close it there, even if it only reads; a copy can be read)"


class FileWriteFailed(Transient):
    """DuckDB has no memory or no room on the disk, or the disk failed."""

    target: str
    file: str
    detail: str

    what_happened = "{target}: DuckDB could not read or write {file}: {detail}"
    what_is_safe = "no row was replaced; the file has the rows of one version of the Delta table."
    what_to_run = "kdi serve {target}   (first make room on the disk or in memory)"


class DuckDbMissing(Terminal):
    """The package duckdb is not installed."""

    target: str

    what_happened = "{target}: the package duckdb is not installed."
    what_is_safe = "no file was touched."
    what_to_run = "pip install 'kdi-assets[duckdb]'"
