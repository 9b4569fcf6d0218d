"""Where the table of a document lies: the one place that knows below which root. No I/O."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from kdi_assets.documents.model.field_types import wrong
from kdi_assets.documents.model.variables import VARIABLE
from kdi_assets.settings import SAFE_SCHEMES, lake_root


def _root(value: str) -> str:
    """A URI or the path of a folder; empty, as of a variable without a value, is no root of its own."""
    if not value:
        return value
    if not re.fullmatch(r"(/|[a-z0-9]+://)[^\s?#]*[^\s?#/]", value):
        right = "a URI or a path from the root, without '/' at its end, e.g. s3://bucket/lake"
        raise wrong(f"{value!r} is not the root of a lake", right)
    if (scheme := urlsplit(value).scheme) not in SAFE_SCHEMES:
        raise wrong(f"on {scheme}:// two drivers could commit the same version", f"one of {_schemes()}, or a path")
    try:
        return lake_root(value)
    except ValueError as other:
        raise wrong(str(other), "a name without it, or the path of a folder") from other


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in sorted(SAFE_SCHEMES) if scheme)


LakeRoot = Annotated[str, AfterValidator(_root), Field(examples=["/mnt/archive/lake"]), VARIABLE]


class InLake:
    """A Delta table that a document names.

    Attributes:
        table: Its path below the root.
        lake: The root of its own; empty: that of the deployment, KDI_LAKE.
        other_lakes: Roots of other tables of the folder, below which it may have been before.
    """

    __slots__ = ()

    table: str
    lake: str
    other_lakes: tuple[str, ...]

    def root(self, lake: str) -> str:
        """The root below which the table lies, without ``/`` at its end.

        Args:
            lake: That of tables without a root of their own, KDI_LAKE.
        """
        return (self.lake or lake).rstrip("/")

    def table_uri(self, lake: str) -> str:
        """Path or URI of the table."""
        return f"{self.root(lake)}/{self.table}"

    def former_uris(self, lake: str, *, renamed_from: str = "") -> tuple[str, ...]:
        """Paths or URIs where the table may still lie: below another root, or under its former name."""
        roots = dict.fromkeys(root.rstrip("/") for root in (self.root(lake), lake, *self.other_lakes))
        names = filter(None, (renamed_from, self.table))
        places = (f"{root}/{name}" for name in names for root in roots)
        return tuple(place for place in places if place != self.table_uri(lake))
