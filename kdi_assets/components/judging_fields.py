"""The fields of a stream that say when what becomes of its messages is no longer right."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from kdi_assets.components import checks
from kdi_assets.components.strict import Fields
from kdi_assets.stream import DeadLetterLimit


class DeadLetterLimitFields(Fields):
    """A drain stops before it commits a plan with more than `count` dead letters that are also more than `share`."""

    share: Annotated[float, BeforeValidator(checks.share)] = Field(
        default=DeadLetterLimit().share,
        description="Share of dead letters among the messages of one plan that should become rows (rows and dead"
        " letters; neither tombstones nor what is filtered). 1 is no limit.",
        examples=[0.1],
    )
    count: int = Field(
        default=DeadLetterLimit().count,
        strict=True,
        ge=0,
        description="So many dead letters of one plan are allowed, whatever their share.",
        examples=[1000],
    )

    def limit(self) -> DeadLetterLimit:
        """What these fields describe."""
        return DeadLetterLimit(self.share, self.count)
