"""`kdi jars`: fetch and verify what Spark and the broker run on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.settings import Settings


def jars(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Folder to fill, e.g. in an image; default: jars in KDI_HOME.")
    ] = None,
    archive: Annotated[
        bool, typer.Option(help="Make the class-data archive too: 200 MB, and Spark starts in half the time.")
    ] = True,
) -> None:
    """Fetch the locked jars that are missing, and verify them all; one line per jar."""
    from kdi_assets.runtime.jars import fetch_jars

    home = Settings.from_environment().home
    fetch_jars(directory or home / "jars", home=home, report=typer.echo)
    if archive and directory is None:  # it holds for jars in one place
        from kdi_assets.upkeep.rehearsal import make_archive

        make_archive(home, typer.echo)
