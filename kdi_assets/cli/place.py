"""Where a command works: the lake, the documents and the brokers, and which of them somebody chose."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from kdi_assets.cli.errors import HomeMissing
from kdi_assets.cli.output import print_progress
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings


def refuse_missing_home(settings: Settings) -> None:
    """Refuse to work in a lake that nobody chose and that is not there: most likely this is another folder.

    Raises:
        HomeMissing: Neither ``KDI_HOME`` nor ``KDI_LAKE`` is set, and the default has no folder.
    """
    if not (os.environ.get("KDI_HOME") or os.environ.get("KDI_LAKE") or settings.home.is_dir()):
        raise HomeMissing(home=settings.home)


def print_place(defs: Path | None, tables: Collection[Stream | RefinedTableSpec | ServedTableSpec]) -> None:
    """Print the lake, the folder of the documents and the brokers on stderr, and where each comes from.

    Args:
        tables: Those that the command is about.
    """
    from kdi_assets.documents.loading.loader import defs_folder

    lake = _origin("KDI_LAKE", otherwise=_origin("KDI_HOME", otherwise="default: KDI_LAKE and KDI_HOME are not set"))
    folder = "--defs" if defs else _origin("KDI_DEFS", otherwise="default: KDI_DEFS is not set")
    print_progress(f"lake       {Settings.from_environment().lake} ({lake})")
    for root in dict.fromkeys(table.lake for table in tables if table.lake):
        print_progress(f"lake       {root} (document)")
    print_progress(f"documents  {defs or defs_folder()} ({folder})")
    clusters = {table.cluster.name: table.cluster for table in tables if isinstance(table, Stream)}
    for name, cluster in clusters.items():
        of_kafka = cluster.system == "kafka"
        address, given = cluster.address, "document"
        if of_kafka and name == "main":
            given = _origin("KDI_KAFKA", otherwise=given)
        elif isinstance(cluster, KinesisRegion) and not cluster.endpoint:
            # boto3 prefers them to the region's address, and a server for tests must not look like AWS.
            names = [v for v in ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL") if os.environ.get(v)]
            address, given = (os.environ[names[0]], names[0]) if names else (address, given)
        print_progress(f"{'brokers' if of_kafka else 'kinesis':10} {address} ({name}: {given})")


def _origin(variable: str, *, otherwise: str) -> str:
    return variable if os.environ.get(variable) else otherwise
