"""`kdi jars`: fetch and verify the jars of Spark and the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.settings import Settings


def jars(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Folder of the jars, e.g. in an image; default: jars in KDI_HOME.")
    ] = None,
    archive: Annotated[
        bool, typer.Option(help="Make the class-data archive too: 200 MB; Spark then starts in half the time.")
    ] = True,
) -> None:
    """Fetch missing jars of the lock file, and verify all of them; prints a line per jar."""
    from kdi_assets.runtime.jars import fetch_jars

    home = Settings.from_environment().home
    fetch_jars(directory or home / "jars", home=home, report=typer.echo)
    if archive and directory is None:  # the archive is valid only for jars at this path
        from kdi_assets.upkeep.rehearsal import make_archive

        make_archive(home, typer.echo)
