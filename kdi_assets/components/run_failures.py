"""A refusal of the engine as a failure in Dagster, and whether Dagster may retry the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from kdi_assets.errors import KdiError, Transient

ERRORS = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
"""The page of errors; only a checkout has it."""
RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""Dagster docs, "Configuring run retries": with false, a run is retried after a crash, but not after a failed step."""


@contextmanager
def refusals_as_failures(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Turn a ``KdiError`` into a ``dg.Failure`` with its three parts and its fields as metadata.

    Raises:
        dg.Failure: Dagster retries step and run after a ``Transient``, and neither after a ``Terminal``.
    """
    try:
        yield
    except KdiError as refusal:
        if not isinstance(refusal, Transient):
            forbid_retries(context)
        parts = dict(zip(("what happened", "what is safe", "what to run"), refusal.message_parts(), strict=True))
        given = {field.name: _plain(getattr(refusal, field.name)) for field in fields(refusal)}
        own = {name: value for name, value in given.items() if value != ""}
        page = {"runbook": f"docs/errors.md, {type(refusal).__name__}"} if ERRORS.exists() else {}
        raise dg.Failure(
            description=str(refusal),
            metadata={**parts, "error": type(refusal).__name__, **page, **own, **_assets(context, own)},
            allow_retries=isinstance(refusal, Transient),
        ) from refusal


def _assets(context: dg.AssetExecutionContext, own: Mapping[str, object]) -> dict[str, dg.MetadataValue[Any]]:
    """The fields that name a table or topic of the run, as links to its asset."""
    keys = {"/".join(key.path): key for key in context.assets_def.keys}
    return {name: dg.MetadataValue.asset(keys[str(value)]) for name, value in own.items() if str(value) in keys}


def forbid_retries(context: dg.AssetExecutionContext) -> None:
    """Keep Dagster from retrying the run after a failed step; after a crash it still does.

    ``allow_retries`` of a failure concerns the step's retry policy only. Run retries read this tag when the run ends,
    so it must be set before the failure. The sensor requests the run's other streams again.
    """
    context.instance.add_run_tags(context.run.run_id, {RETRY_TAG: "false"})


def _plain(value: object) -> str | int | float | dg.JsonMetadataValue:
    """A field's value as metadata: numbers as numbers, which the UI plots; mappings and records as JSON; else text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    plain = _json(value)
    return dg.MetadataValue.json(plain) if isinstance(plain, dict) else str(value)


def _json(value: object) -> object:
    if is_dataclass(value) and type(value).__str__ is object.__str__:  # a topic partition, say, has a text of its own
        return {field.name: _json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _json(of) for key, of in value.items()}
    return value if isinstance(value, int | float) else str(value)
