"""Addresses of PostgreSQL databases, as libpq reads them."""

from __future__ import annotations

from collections.abc import Mapping


def connection_parameters(address: str) -> dict[str, str]:
    """libpq's parameters in an address: a URL, or names with their values.

    Raises:
        ValueError: It is neither. The text does not quote it, because it may hold a password.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except psycopg.Error:
        raise ValueError("the database's address is not that of PostgreSQL") from None


def host_port_database(parameters: Mapping[str, str]) -> tuple[str, str, str]:
    """Host, port and database of libpq's parameters.

    Hosts and ports may be several, with commas. A host that is the folder of a socket begins with a slash. The database
    is empty if neither it nor a user is named.
    """
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    return host, parameters.get("port") or "5432", parameters.get("dbname") or parameters.get("user") or ""
