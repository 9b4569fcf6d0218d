"""What the components of things that streams name have in common: they make no definitions of their own."""

from __future__ import annotations

from typing import Self

import dagster as dg
from pydantic import BaseModel

from kdi_assets.components.strict import Fields


class Named(dg.Component, dg.Resolvable, Fields):
    """A document that other documents refer to by its name."""

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return cls.model_construct(**dict(model))  # as written, without templates

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()
