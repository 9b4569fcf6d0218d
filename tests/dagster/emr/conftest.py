"""A code location with a batch on EMR, whose calls a server of the tests answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance

from kdi_assets.sensors import emr_batch as module
from tests.emr.control_plane import ControlPlane, serving
from tests.emr.declared import environment
from tests.emr.site import LAKE, Site


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    with serving(ControlPlane()) as plane:
        for name, value in {**environment(plane.endpoint), "KDI_LAKE": LAKE}.items():
            monkeypatch.setenv(name, value)
        yield plane


@pytest.fixture
def site(instance: DagsterInstance, plane: ControlPlane) -> Site:
    return Site(instance, plane)


@pytest.fixture
def grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if runs had ended some minutes ago."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
