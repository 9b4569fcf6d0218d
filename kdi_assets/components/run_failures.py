"""A refusal of the engine as the Dagster UI shows it, and whether Dagster may try the run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import dagster as dg

from kdi_assets.errors import KdiError, Transient

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""Dagster docs, "Configuring run retries": false keeps run retries for crashed workers and refuses them for steps."""


@contextmanager
def refusals_shown(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Turn a ``KdiError`` into a ``dg.Failure`` with its three parts and its fields as metadata.

    Raises:
        dg.Failure: With ``allow_retries`` for a ``Transient``; after a ``Terminal`` the run is not retried either.
    """
    try:
        yield
    except KdiError as refusal:
        if not isinstance(refusal, Transient):
            refuse_retries(context)
        raise failure(refusal) from refusal


def refuse_retries(context: dg.AssetExecutionContext) -> None:
    """Keep Dagster from retrying the run for what its steps refuse; a crashed worker is still retried.

    ``allow_retries`` of a failure speaks to a step's retry policy alone. Run retries read this tag when the run ends,
    so it must be there before the failure is. Other streams of the run are requested again by the sensor.
    """
    context.instance.add_run_tags(context.run.run_id, {RETRY_TAG: "false"})


def failure(refusal: KdiError) -> dg.Failure:
    """The refusal as Dagster records it."""
    parts = dict(zip(("what happened", "what is safe", "what to run"), refusal.parts(), strict=True))
    own = {field.name: _plain(getattr(refusal, field.name)) for field in fields(refusal)}
    return dg.Failure(
        description=str(refusal),
        metadata={**parts, "error": type(refusal).__name__, **own},
        allow_retries=isinstance(refusal, Transient),
    )


def _plain(value: object) -> str | int | float:
    """A field's value as metadata shows it: numbers as numbers, so that they can be plotted; the rest as text."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
