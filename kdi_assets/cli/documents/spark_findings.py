"""What `kdi check` finds with Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdi_assets.documents.loading.errors import DocumentMistake
    from kdi_assets.errors import KdiError


@dataclass
class SparkFindings:
    """What Spark and the schema registries found in the documents.

    Attributes:
        refusals: Why a registry or the lake did not answer, by its name.
        unchecked: The streams and refined tables that could not be checked for that.
    """

    mistakes: list[DocumentMistake] = field(default_factory=list)
    refusals: dict[str, KdiError] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
