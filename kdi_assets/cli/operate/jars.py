"""`kdi jars`: fetch and verify the jars of Spark, the broker and the clients of S3 and Kinesis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.cli.live_line import watch_of_command
from kdi_assets.settings import Settings


def jars(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Folder of the jars, e.g. in an image; it gets those for S3 too. Default: jars in KDI_HOME.",
        ),
    ] = None,
    kinesis: Annotated[
        bool, typer.Option("--kinesis", help="Fetch those for Kinesis too: 1.4 MB, and those for S3.")
    ] = False,
    archive: Annotated[
        bool, typer.Option(help="Make the class-data archive too: 200 MB; Spark then starts in half the time.")
    ] = True,
) -> None:
    """Fetch missing jars of the lock file, and verify all of them.

    The jars for S3 (13 MB) are fetched if KDI_LAKE is on S3. Those for Kinesis stay once they were fetched.
    """
    from kdi_assets.runtime.jars import fetch_jars, spark_groups

    settings = Settings.from_environment()
    of_spark = spark_groups(settings) if directory is None else ("spark", "s3")
    groups = {"build", "broker", *of_spark, *(("s3", "kinesis") if kinesis else ())}
    with watch_of_command(as_json=False).watching():
        fetch_jars(directory or settings.home / "jars", home=settings.home, report=typer.echo, groups=groups)
        if archive and directory is None:  # the archive is valid only for jars at this path
            from kdi_assets.tools.rehearsal import make_archive

            make_archive(settings, typer.echo)
