"""A PostgreSQL server, and a table that is served from it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

from kdi_assets.dev.postgres import EmbeddedPostgres
from tests.served import ROWS, ServedDelta, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with running_server() as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> str:
    """A database without anything of other tests."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS test CASCADE")
    return server.url


@pytest.fixture
def numbers(spark: SparkSession, lake: str, url: str) -> ServedDelta:
    """A table of 100 rows, not served yet."""
    made = ServedDelta.create(spark, lake, url)
    made.sql(ROWS % 100)
    return made
