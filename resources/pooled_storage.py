"""Dagster's storage in PostgreSQL, with connections that are kept: ``storage: custom`` of a deployment's dagster.yaml.

Dagster's own opens a connection for each query, and PostgreSQL a process for each connection; and before many queries
it looks which tables and columns there are. An idle deployment makes many small queries: these cost more than all else
that it does.
"""

from __future__ import annotations

import json
import os
import select
import weakref
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache, wraps
from typing import Any, cast

from dagster import Field
from dagster_postgres import (
    DagsterPostgresStorage,
    PostgresEventLogStorage,
    PostgresRunStorage,
    PostgresScheduleStorage,
)
from dagster_postgres.utils import create_pg_engine, get_token_provider_from_config, pg_config, pg_url_from_config
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import InvalidatePoolError

KEPT_CONNECTIONS = 4
MAX_CONNECTIONS = 32
"""Of each process, unless the configuration has ``max_connections``. Dagster opens a second connection inside some
transactions, so twice the number of the daemon's threads for ticks, ``num_workers``: those that all wait for a second
one would wait for each other."""
RECYCLE_SECONDS = 1800
"""A connection is opened again when it is this old: PostgreSQL's process of it grows with what it has cached."""
NOTICES_A_LOST_HOST = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of PostgreSQL's client. A host that is gone ends no connection: a query would wait a quarter of an hour."""


class PooledPostgresStorage(DagsterPostgresStorage):
    """Dagster's ``DagsterPostgresStorage``, with one pool of connections in each process, and a setting for its size.

    All instances of a process share the pool, and what is known of the schema: the code server opens an instance for
    each tick. The webserver replaces the pool by Dagster's own, as it does with any storage.
    """

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: Any = None,
        token_provider: Any = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(postgres_url, should_autocreate_tables, inst_data, token_provider)  # makes the tables
        engine, there = _pool(postgres_url, token_provider, max_connections), set[tuple[str, ...]]()
        self._run_storage = _Runs(postgres_url, False, token_provider=token_provider)
        self._event_log_storage = _Events(postgres_url, False, token_provider=token_provider)
        self._schedule_storage = _Schedules(postgres_url, False, token_provider=token_provider)
        for part in (self._run_storage, self._event_log_storage, self._schedule_storage):
            part._engine, part._there = engine, there

    @classmethod
    def config_type(cls) -> Any:
        """Dagster's own settings, and ``max_connections`` of each process."""
        return {**cast(Mapping[str, Any], pg_config()), "max_connections": Field(int, default_value=MAX_CONNECTIONS)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> PooledPostgresStorage:
        """A storage for one instance; ``inst_data`` is what the instance was configured with."""
        # PostgreSQL's client takes from the environment what the URL does not say.
        environment = {name: value for name, value in os.environ.items() if name.startswith("PG")}
        own = copy(_of_process(json.dumps(config_value, sort_keys=True), json.dumps(environment, sort_keys=True)))
        own._inst_data = inst_data
        # Dagster lets a storage belong to one instance.
        own._run_storage = copy(own._run_storage)
        own._event_log_storage = copy(own._event_log_storage)
        own._schedule_storage = copy(own._schedule_storage)
        return own


@cache
def _of_process(config: str, _environment: str) -> PooledPostgresStorage:
    """The storage that those of the instances are copies of."""
    value = json.loads(config)
    tokens = get_token_provider_from_config(value)
    return PooledPostgresStorage(
        pg_url_from_config(value),
        value.get("should_autocreate_tables", True),
        token_provider=tokens,
        max_connections=value["max_connections"],
    )


def _until_there(look: Callable[..., bool]) -> Callable[..., bool]:
    """A look for a part of the schema, made until it is there: migrations of Dagster only add."""

    @wraps(look)
    def remembered(self: Any, *what: Any) -> bool:
        name = (look.__qualname__, *(word for word in what if isinstance(word, str)))  # and not the connection
        if name not in self._there and look(self, *what):
            self._there.add(name)
        return name in self._there

    return remembered


class _Runs(PostgresRunStorage):
    _there: set[tuple[str, ...]]
    has_run_stats_index_cols = _until_there(PostgresRunStorage.has_run_stats_index_cols)
    has_backfill_id_column = _until_there(PostgresRunStorage.has_backfill_id_column)
    has_backfill_tags_table = _until_there(PostgresRunStorage.has_backfill_tags_table)
    has_bulk_actions_selector_cols = _until_there(PostgresRunStorage.has_bulk_actions_selector_cols)
    has_bulk_action_job_name_column = _until_there(PostgresRunStorage.has_bulk_action_job_name_column)


class _Events(PostgresEventLogStorage):
    _there: set[tuple[str, ...]]
    has_table = _until_there(PostgresEventLogStorage.has_table)
    _has_asset_key_col_on_connection = _until_there(PostgresEventLogStorage._has_asset_key_col_on_connection)


class _Schedules(PostgresScheduleStorage):
    _there: set[tuple[str, ...]]
    has_instigators_table = _until_there(PostgresScheduleStorage.has_instigators_table)
    _has_instigators_table = _until_there(PostgresScheduleStorage._has_instigators_table)
    has_built_index = _until_there(PostgresScheduleStorage.has_built_index)


def _pool(url: str, tokens: Any, max_connections: int) -> Engine:
    """A pool of connections, for all threads of this process."""
    kept = min(KEPT_CONNECTIONS, max_connections)
    engine = create_pg_engine(
        url,
        tokens,
        isolation_level="AUTOCOMMIT",  # as Dagster's own
        pool_size=kept,
        max_overflow=max_connections - kept,
        pool_recycle=RECYCLE_SECONDS,
        connect_args=NOTICES_A_LOST_HOST,
    )
    event.listen(engine, "checkout", _refuse_ended)
    _forget_in_child(engine)
    return engine


def _refuse_ended(connection: Any, record: Any, proxy: Any) -> None:
    """Let the pool open its connections again if the database has ended this one, as a restart does.

    A server says nothing unasked: a connection with something to read was ended. The pool's own check asks a question
    before each query, which costs as much as most of Dagster's queries.
    """
    waits = select.poll()
    waits.register(connection, select.POLLIN)
    if waits.poll(0):
        raise InvalidatePoolError("the database has ended the connection")


def _forget_in_child(engine: Engine) -> None:
    """Let a forked process open connections of its own: two processes on one would read each other's answers."""
    known = weakref.ref(engine)

    def forget() -> None:
        if (inherited := known()) is not None:
            inherited.dispose(close=False)  # the parent goes on with them

    os.register_at_fork(after_in_child=forget)
