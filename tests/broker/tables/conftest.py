"""Fixtures of tests of tables."""

from __future__ import annotations

import pytest

from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.tables.kept import (
    RECORD,
    at_age,
    message,
)


@pytest.fixture
def aged(driven: DrivenFactory) -> DrivenStream:
    """Rows of 12, 11 and 10 days ago and of today, and a broken message of 11 and of 3 days ago; all are kept."""
    web = driven(partitions=1, **RECORD)
    web.send(message(0, 12), message(1, 11), timestamp=at_age(11))
    web.send('{"id": 2, "day"', timestamp=at_age(11))
    web.drain()
    web.send('{"id": 3, "day"', timestamp=at_age(3))
    web.send(message(4, 10), message(5, 0), message(6, 11), timestamp=at_age(0))
    web.drain()
    return web
