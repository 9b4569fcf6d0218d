"""The served tables in `kdi status`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.output import print_json, table_text, utc_text
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.serve.status import ServedStatus

HEAD = ("SERVED TABLE", "DELTA TABLE", "HAS", "NEWEST", "BEHIND", "SINCE")


def print_served(defs: Path | None, *, as_json: bool) -> None:
    """Print a line for each served table of the documents; nothing without one."""
    from kdi_assets.config.loader import load_folder

    tables = load_folder(defs).served.values()
    if not tables:
        return
    from kdi_assets.serve.status import read_served_status

    settings = Settings.from_environment()
    statuses = [read_served_status(served, lake=settings.lake, home=settings.home) for served in tables]
    if not as_json:
        typer.echo(served_text(statuses))
        return
    for status in statuses:
        print_json(
            {
                "served": status.served.name,
                "table": status.served.table,
                "consumed_version": status.consumed,
                "newest_version": status.newest,
                "versions_behind": status.behind,
                "served_at": status.committed_at,
                "error": status.refusal,
            }
        )


def served_text(statuses: Sequence[ServedStatus]) -> str:
    """The served tables as a table; after it, every refusal in full."""
    cells = [
        (
            status.served.name,
            status.served.table,
            "-" if status.consumed is None else f"v{status.consumed}",
            "?" if status.newest is None else f"v{status.newest}",
            "?" if status.behind is None else f"{status.behind:,}",
            "-" if status.committed_at is None else utc_text(status.committed_at, date=True),
        )
        for status in statuses
    ]
    refusals = dict.fromkeys(str(status.refusal) for status in statuses if status.refusal)
    return "\n".join([table_text(HEAD, cells, align="<<>>>>"), *refusals])
