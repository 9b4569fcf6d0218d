"""OpenLineage events of a run, sent in the background: no receiver slows a run down or makes it fail."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kdi_assets.delta.column_types import table_fields
from kdi_assets.documents.model.stream import Stream
from kdi_assets.follow.listeners.heard import HeardCommit, HeardTable
from kdi_assets.messages.formats.comments import column_tags
from kdi_assets.runtime.threads import start_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.follow.listeners.column_lineage import InputFields

WAIT_SECONDS = 5.0
"""How long the end of a run waits for the receiver of its events."""

_IMPORTING = Lock()
"""The client's modules import each other: two threads that begin with different ones would wait for each other."""

log = logging.getLogger(__name__)


class LineageSender:
    """Sends START, and COMPLETE, FAIL or ABORT, of one run; events leave in this order.

    Args:
        kind: As in ``RunListener``.
        run_id: Dagster's run, if there is one.
    """

    def __init__(self, kind: str, table: HeardTable, lake: str, *, run_id: str = "") -> None:
        self._kind, self._table, self._lake, self._parent = kind, table, lake, run_id
        self._run_id = str(uuid4())
        self._sent: Future[None] = Future()
        self._sent.set_result(None)
        self._client: Any = None

    def started(self, at: datetime) -> None:
        """Send START."""
        self._send("START", at)

    def ended(
        self,
        at: datetime,
        commits: Sequence[HeardCommit],
        failure: BaseException | None,
        *,
        session: Callable[[], SparkSession] | None,
    ) -> None:
        """Send the last event, and wait a little for the receiver.

        Args:
            session: To parse the document's expressions; ``None``: the event has no column lineage.
        """
        state = "COMPLETE" if failure is None else "FAIL" if isinstance(failure, Exception) else "ABORT"
        # Parsed here: the session may be closed as soon as the run has ended.
        columns = self._columns(session) if session else {}
        self._send(state, at, commits=tuple(commits), failure=failure, columns=columns)
        if not wait([self._sent], timeout=WAIT_SECONDS).done:
            self._warn(f"the receiver did not answer within {WAIT_SECONDS:g} s")
        elif isinstance(failed := self._sent.exception(), ModuleNotFoundError):
            self._warn(f"{failed}; pip install 'kdi-assets[openlineage]'")
        elif failed is not None:
            self._warn(f"{type(failed).__name__}: {failed}")

    def _columns(self, session: Callable[[], SparkSession]) -> Mapping[str, InputFields]:
        from kdi_assets.follow.listeners.column_lineage import column_lineage
        from kdi_assets.runtime.spark_internals import referenced_names

        if not isinstance(self._table, Stream):
            return {}
        try:
            columns = {f["name"]: column_tags(f) for f in table_fields(self._table.table_uri(self._lake))}
            return column_lineage(self._table, columns, referenced=partial(referenced_names, session()))
        except Exception as failure:  # noqa: BLE001 - an event without column lineage is better than a failed run
            self._warn(f"no column lineage: {type(failure).__name__}: {failure}")
            return {}

    def _send(self, state: str, at: datetime, **facts: Any) -> None:
        before = self._sent

        def send() -> None:
            before.result()  # without START, the run is unknown to the receiver: then its end is not sent either
            with _IMPORTING:
                from openlineage.client import OpenLineageClient

                from kdi_assets.follow.listeners.lineage_events import run_event
            self._client = self._client or OpenLineageClient()
            run = self._kind, self._table, self._lake
            self._client.emit(run_event(state, at, *run, run_id=self._run_id, parent=self._parent, **facts))

        self._sent = start_in_thread(send, name="lineage")

    def _warn(self, reason: str) -> None:
        without_password = re.sub(r"//[^/\s]*@", "//", reason)
        log.warning(
            "%s: OpenLineage has no complete events of this %s: %s", self._table.name, self._kind, without_password
        )
