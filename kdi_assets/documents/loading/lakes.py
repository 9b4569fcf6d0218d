"""Roots of lakes: where the tables lie that refined and served tables read, and where each may have been before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.loading.table_paths import BESIDE_REFINED_TABLE, BESIDE_STREAM
from kdi_assets.documents.loading.yaml_documents import YamlDocument
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import ON_S3, Settings

MadeTable = TypeVar("MadeTable", Stream, RefinedTableSpec)


def own_lakes(streams: Mapping[str, Stream], refined: Mapping[str, RefinedTableSpec]) -> dict[str, str]:
    """The root of each table that has one of its own, and of the tables beside it, by path."""
    found: dict[str, str] = {}
    for tables, beside in ((streams, BESIDE_STREAM), (refined, BESIDE_REFINED_TABLE)):
        for table in tables.values():
            paths = (table.table, *(f"{table.table}_{name}" for name in beside)) if table.lake else ()
            found |= dict.fromkeys(paths, table.lake)
    return found


def lakes_without_client(
    tables: Mapping[str, Stream | RefinedTableSpec], documents: Mapping[str, YamlDocument], settings: Settings
) -> Iterator[DocumentMistake]:
    """Roots on S3, where Spark starts without the client of S3 because nothing in the environment lies there."""
    if settings.uses_s3:
        return
    for name, table in tables.items():
        root = urlsplit(table.lake)
        if root.scheme in ON_S3:
            said = f"{table.lake} is on S3, and the settings here, with KDI_LAKE={settings.lake}, have no bucket"
            yield documents[name].mistake("lake", said, f"KDI_S3_BUCKETS={root.netloc} in the environment")


def paths_beside_hdfs(
    tables: Mapping[str, Stream | RefinedTableSpec], documents: Mapping[str, YamlDocument], settings: Settings
) -> Iterator[DocumentMistake]:
    """Roots without a scheme beside a lake on HDFS: Spark may look for them there, and everything else on this disk."""
    if urlsplit(settings.lake).scheme != "hdfs":
        return
    for name, table in tables.items():
        if table.lake and not urlsplit(table.lake).scheme:
            said = f"{table.lake} has no scheme, and with KDI_LAKE={settings.lake} Spark may look for it on HDFS"
            right = f"file://{table.lake} for a folder that all machines mount, or hdfs://HOST:PORT{table.lake}"
            yield documents[name].mistake("lake", said, right)


def with_other_lakes(tables: Mapping[str, MadeTable], lakes: Mapping[str, str]) -> dict[str, MadeTable]:
    """The tables; each knows all roots that documents name, because it may have been below one of them before.

    Args:
        lakes: ``own_lakes``.
    """
    roots = tuple(dict.fromkeys(lakes.values()))
    return {name: replace(table, other_lakes=roots) for name, table in tables.items()}


def with_upstream_lakes(
    tables: Mapping[str, RefinedTableSpec], lakes: Mapping[str, str]
) -> dict[str, RefinedTableSpec]:
    """The tables; each knows the roots of the tables that it reads."""
    return {
        name: replace(table, upstreams=tuple(replace(u, lake=lakes.get(u.table, "")) for u in table.upstreams))
        for name, table in tables.items()
    }
