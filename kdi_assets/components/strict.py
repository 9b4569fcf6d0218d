"""What all fields of all documents have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Fields(BaseModel):
    """Fields of a document or of a mapping in it; others than these are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
