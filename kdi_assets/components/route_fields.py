"""The fields of a stream that shares its topic with others."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kdi_assets.components import checks
from kdi_assets.components.strict import Fields
from kdi_assets.message_rules import Rest, Route


class RouteFields(Fields):
    """Which messages of the topic are this stream's; all streams of the topic with a route make one route group."""

    when: Annotated[str, AfterValidator(checks.sql)] = Field(
        default="",
        description="Spark SQL condition over the same names as `date`: the messages for which it is true are this"
        " stream's; several streams may take the same one. Without it, nothing but the rest.",
        examples=["kind = 'order'"],
    )
    rest: Annotated[Rest | None, BeforeValidator(checks.rest)] = Field(
        default=None,
        description="Given by exactly one stream of the group: it has the rest, the messages that no condition takes,"
        " as dead_letters (`unrouted`) or as rows. What nobody can decode is among its dead letters either way.",
        examples=["dead_letters"],
    )

    @model_validator(mode="after")
    def _says_something(self) -> RouteFields:
        if not self.when and self.rest is None:
            raise checks.wrong("takes no message", "a condition, when: kind = 'order', or the rest, rest: dead_letters")
        return self

    def route(self) -> Route:
        """What these fields describe; which conditions the other streams have, their documents say."""
        return Route(self.when, self.rest)
