"""Errors of the command line."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.errors import AGAIN, Terminal, Transient


class HomeMissing(Terminal):
    """Neither ``KDI_HOME`` nor ``KDI_LAKE`` is set, and the folder where the default would be has none."""

    home: Path

    what_happened = "{home} does not exist, and neither KDI_HOME nor KDI_LAKE is set: there is no lake here."
    what_is_safe = "nothing was read and nothing was made."
    what_to_run = f"{AGAIN}   (in the folder that has .kdi, or with KDI_HOME; mkdir .kdi begins a new lake here)"


class NothingToCheck(Terminal):
    """No document describes a stream; a check of nothing must not pass."""

    folder: str

    what_happened = "no document in {folder} describes a stream, so nothing was checked."
    what_is_safe = "nothing was drained."
    what_to_run = "kdi check-assets --defs FOLDER    (or set KDI_DEFS to the folder of the documents)"


class StatementRefused(Terminal):
    """Spark does not understand a statement, or does not find what it names."""

    detail: str

    what_happened = "Spark refuses the statement: {detail}"
    what_is_safe = "nothing was changed."
    what_to_run = f"{AGAIN}   (with a statement that Spark understands; a table is delta.`PATH`, with its whole path)"


class StatementFailed(Terminal):
    """Spark or Delta refused a statement while it ran: for its rows, a constraint, the storage or the workers."""

    detail: str
    needs: str

    what_happened = "Spark or Delta refused the statement while it ran: {detail}"
    what_is_safe = "nothing is half written: a statement is one commit of the table, or none."
    what_to_run = f"{AGAIN}   (once {{needs}})"


class StatementInterrupted(Transient):
    """A statement ended for a reason that may pass, and may have been committed before."""

    is_repeatable = False
    detail: str

    what_happened = "Spark failed while the statement ran: {detail}"
    what_is_safe = "nothing is half written; but the statement may have been committed before Spark failed."
    what_to_run = (
        "kdi sql 'DESCRIBE HISTORY delta.`PATH`'   (of the table that the statement writes, before the same command "
        "again: an INSERT that is committed would add its rows once more)"
    )


class QueryInterrupted(Transient):
    """A statement that only reads ended for a reason that may pass."""

    detail: str

    what_happened = "Spark failed while the statement ran: {detail}"
    what_is_safe = "the statement only reads; nothing was changed."
    what_to_run = AGAIN


class SparkFailed(Transient):
    """Spark failed during a command."""

    stream: str
    command: str
    detail: str

    what_happened = "{stream}: {command}: Spark failed: {detail}"
    what_is_safe = "what was committed stays committed; nothing else was written."
    what_to_run = AGAIN
