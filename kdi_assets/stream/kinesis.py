"""Kinesis as documents describe it: the connection to a region, and the stream of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from kdi_assets.stream.field_types import ConnectionName, Declared, matching


@dataclass(frozen=True, slots=True)
class KinesisRegion(Declared):
    """Kinesis in one region. Credentials are those that AWS's clients find on the driver."""

    system: ClassVar[str] = "kinesis"

    name: Annotated[ConnectionName, Field(examples=["main"])]
    """The name that streams use for the connection."""
    region: Annotated[
        str,
        matching(r"[a-z]{2}(-[a-z]+)+-\d", "is not a region of AWS", "e.g. eu-central-1"),
        Field(examples=["eu-central-1"]),
    ]
    """The region of the streams."""
    endpoint: Annotated[
        str,
        matching(r"https?://[^\s/?#@]+/?", "is not the address of an endpoint", "e.g. https://vpce-1.kinesis.aws"),
        Field(examples=["http://127.0.0.1:14566"]),
    ] = ""
    """Another address than that of the region: of a VPC, or of a server for tests."""

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self.endpoint or self.region
