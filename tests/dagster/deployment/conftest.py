"""Releases of the chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deployment.charts import REQUIRED, TWO_LOCATIONS, render


@pytest.fixture(scope="session")
def plain() -> list[dict[str, Any]]:
    return render(REQUIRED)


@pytest.fixture(scope="session")
def clustered() -> list[dict[str, Any]]:
    return render(TWO_LOCATIONS)
