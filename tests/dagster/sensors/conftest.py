"""Ticks of the follow sensor over two refined tables, one made of the other."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance

from tests.dagster.follow_ticks import Sensor


@pytest.fixture
def sensor(instance: DagsterInstance) -> Sensor:
    return Sensor(instance)
