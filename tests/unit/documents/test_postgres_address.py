"""Errors and lineage take host, port and database from the address of a database by the same rules."""

from __future__ import annotations

import traceback

import pytest

from kdi_assets.documents.model.connections.postgres_address import connection_parameters, host_port_database


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://kdi@db.internal:6432/usage", ("db.internal", "6432", "usage")),
        ("postgresql://kdi@one:5432,two:5433/usage", ("one,two", "5432,5433", "usage")),
        ("postgresql://kdi@db", ("db", "5432", "kdi")),
        ("postgresql://postgres@/postgres?host=/run/data", ("/run/data", "5432", "postgres")),
        ("hostaddr=10.0.0.1 dbname=usage", ("10.0.0.1", "5432", "usage")),
        ("", ("localhost", "5432", "")),
    ],
)
def test_an_address_has_a_host_a_port_and_a_database(address: str, place: tuple[str, str, str]) -> None:
    assert host_port_database(connection_parameters(address)) == place


def test_a_text_that_is_no_address_is_refused_without_showing_its_password() -> None:
    """Pass: nothing that a traceback prints has it; psycopg's own error quotes the whole text."""
    password = "sesame-open"
    with pytest.raises(ValueError, match="not that of PostgreSQL") as refused:
        connection_parameters(f"postgresql//u:{password}@h/d")

    assert password not in "".join(traceback.format_exception(refused.value))
