"""Definitions that runs inherit from the process that they are forked off.

Making the definitions of all documents takes 5 ms of CPU a stream, and a run carries out few of them. So a run reads
the documents, in 0.2 ms a stream, and takes the definitions that it has inherited if they were made from the same
inputs. If not, it makes its own, and asks the forking process to make them before it forks again. The forking process
asks no storage: the clients of storages start threads, and the forks of a process with threads may hang.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from kdi_assets.components.names import auto_start_uri, only_known_starts, table_start
from kdi_assets.documents.loading.folder import is_yaml, visible_files
from kdi_assets.documents.loading.loader import cached_streams, load_folder_once

log = logging.getLogger(__name__)
STARTS_AT_ONCE = 16
"""Tables whose oldest dates are read at once: a storage takes a request for each."""
REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class FolderDefinitions:
    """The definitions of a folder's documents.

    Attributes:
        of_documents: They alone, for a code location with definitions of its own.
        location: A whole code location, without definitions of its own.
    """

    of_documents: dg.Definitions
    location: dg.Definitions


class _Inputs(NamedTuple):
    """What definitions are made from.

    Attributes:
        documents: The YAML files.
        described: What they describe, with the content of files that they name.
        starts: By URI, the oldest dates of tables whose partitions start with them.
    """

    folder: Path
    documents: Mapping[Path, bytes]
    described: Mapping[str, Any]
    starts: Mapping[str, date]


class _Inherited(NamedTuple):
    inputs: _Inputs
    definitions: FolderDefinitions


_inherited: _Inherited | None = None
_to_forking: socket.socket | None = None
"""In a run, takes requests to the process that it was forked off."""


def inherited_definitions(folder: Path) -> FolderDefinitions | None:
    """The definitions that this run has inherited, if they were made from the inputs of now; else it asks for them.

    Raises:
        Mistakes: Documents are wrong.
        DefsFolderMissing: The folder does not exist.
    """
    if _to_forking is None:
        return None
    with ThreadPoolExecutor(STARTS_AT_ONCE) as threads:
        inputs = _read_inputs(folder, threads.map)
    if inputs is None:
        return None
    if _inherited and _inherited.inputs == inputs:
        return _inherited.definitions
    request = {"folder": str(folder), "starts": {uri: str(day) for uri, day in inputs.starts.items()}}
    try:
        _to_forking.send(json.dumps(request).encode(), socket.MSG_DONTWAIT)
    except OSError as failed:  # too many requests, or too long a one
        log.warning("the next run makes the definitions of %s itself, too: %s", folder, failed)
    return None


def make_for_forks(make: Callable[[Path], FolderDefinitions]) -> None:
    """Let this process make the definitions that its forks ask for, before it forks again."""
    global _to_forking
    requests, _to_forking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    forking = os.getpid()

    def make_what_was_asked_for() -> None:
        if os.getpid() == forking and (asked := _newest(requests)):  # a run may fork, too
            starts = {uri: date.fromisoformat(day) for uri, day in asked["starts"].items()}
            _make_unless_made(Path(asked["folder"]), starts, make)

    os.register_at_fork(before=make_what_was_asked_for)


def _newest(requests: socket.socket) -> dict[str, Any]:
    newest: dict[str, Any] = {}
    with suppress(BlockingIOError):
        while True:
            newest = json.loads(requests.recv(REQUEST_BYTES, socket.MSG_DONTWAIT))
    return newest


def _make_unless_made(folder: Path, starts: Mapping[str, date], make: Callable[[Path], FolderDefinitions]) -> None:
    global _inherited
    try:
        with only_known_starts(starts):
            inputs = _fresh_inputs(folder)
            if inputs is None or (_inherited and _inherited.inputs == inputs):
                return
            _inherited = None
            made = make(folder)
            if _fresh_inputs(folder) == inputs:  # a deployment may be under way
                _inherited = _Inherited(inputs, made)
    except Exception:
        log.exception("each run makes the definitions of %s itself", folder)
    finally:
        cached_streams.cache_clear()  # the runs read again


def _fresh_inputs(folder: Path) -> _Inputs | None:
    cached_streams.cache_clear()
    return _read_inputs(folder, map)


def _read_inputs(folder: Path, each: Callable[[Callable[[str], date], list[str]], Iterable[date]]) -> _Inputs | None:
    """The inputs; ``None`` if there are others, as modules, which stay as they were imported first.

    Args:
        each: Like ``map``.
    """
    loaded = load_folder_once(folder)
    try:
        files = [] if loaded.of_other_packages else list(visible_files(folder))
        documents = {path: path.read_bytes() for path in files if is_yaml(path)}
    except OSError:  # Dagster says what it cannot read
        return None
    modules = any(path.suffix == ".py" and path != folder / "__init__.py" for path in files)
    if not documents or modules or any(b"template_vars_module" in text for text in documents.values()):
        return None
    uris = [uri for stream in loaded.streams.values() if (uri := auto_start_uri(stream))]
    return _Inputs(folder, documents, vars(loaded), dict(zip(uris, each(table_start, uris), strict=True)))
