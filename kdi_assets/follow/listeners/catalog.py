"""Names and places of tables in a catalog: AWS Glue, or the catalog of the Spark session. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from kdi_assets.delta.storage import storage_uri
from kdi_assets.follow.listeners.heard import HeardTable

CatalogKind = Literal["glue", "spark"]


@dataclass(frozen=True, slots=True)
class CatalogSetting:
    """``KDI_CATALOG``: ``glue`` or ``spark``, and the database of all tables if one is given: ``glue:lake``."""

    kind: CatalogKind
    database: str = ""

    @classmethod
    def parse(cls, text: str) -> CatalogSetting:
        """The setting as ``Settings`` has checked it."""
        kind, _, database = text.partition(":")
        return cls(cast(CatalogKind, kind), database)


class CatalogTable(NamedTuple):
    """A table's name in the catalog."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


class RegisteredElsewhere(Exception):
    """The name in the catalog belongs to a table at another place."""

    def __init__(self, table: CatalogTable, *, found: str, uri: str) -> None:
        super().__init__(f"{table} is registered with the location {found}, and this table is at {uri}")


def catalog_table(described: HeardTable, database: str = "") -> CatalogTable:
    """The table's name: ``bronze/web_requests`` becomes ``bronze.web_requests``, and ``orders`` ``default.orders``.

    With a database for all tables it becomes ``<database>.bronze_web_requests``. Names are in lower case, and other
    characters than letters, digits and ``_`` become ``_``.

    Source: Athena, "Name databases, tables, and columns".
    """
    *folders, name = (re.sub(r"[^a-z0-9_]", "_", part) for part in described.table.lower().split("/"))
    if database:
        return CatalogTable(database, "_".join([*folders, name]))
    return CatalogTable("_".join(folders) or "default", name)


def same_place(one: str, other: str) -> bool:
    """Whether two locations are the same folder."""
    return _place(one) == _place(other)


def _place(location: str) -> str:
    return re.sub(r"^file:(//)?(?=/)", "", storage_uri(location)).rstrip("/")
