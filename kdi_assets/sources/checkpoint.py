"""What a Structured Streaming query's checkpoint says of its offsets in Kafka; read once, to take its table over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.ledger.damage import said, storage_failures
from kdi_assets.ledger.storage import storage
from kdi_assets.stream import TopicPartition

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_KNOWN = "v1"
"""The form of the files that is read here; a later Spark may write another one."""


class CheckpointUnfit(Exception):
    """The checkpoint does not say what is needed; the message says why not."""


@dataclass(frozen=True)
class Checkpoint:
    """A query's checkpoint.

    Attributes:
        query_id: The query's id, under which Delta's sink records its batches in the table.
        planned: The newest batch whose offsets are in the checkpoint.
        committed: The newest batch that the query itself calls done; -1: none.

    Source: Spark, ``OffsetSeqLog`` and ``CommitLog``: offsets are written before a batch, its commit behind it.
    """

    uri: str
    query_id: str
    planned: int
    committed: int

    @classmethod
    def read(cls, uri: str) -> Checkpoint:
        """Look at the checkpoint in a folder, a path or URI.

        Raises:
            CheckpointUnfit: None is there.
            StorageFailed: The storage does not answer.
        """
        files = _folder(uri)
        with storage_failures(uri):
            planned, committed = _batches(files, "offsets"), _batches(files, "commits")
        if not planned:
            raise CheckpointUnfit(f"{uri} holds no checkpoint with offsets")
        try:
            query_id = str(json.loads(_read(uri, files, "metadata"))["id"])
        except (ValueError, KeyError, TypeError) as other:
            raise CheckpointUnfit(f"{uri}/metadata does not say the query's id") from other
        return cls(uri, query_id, max(planned), max(committed, default=-1))

    def offsets_behind(self, batch: int) -> dict[TopicPartition, int]:
        """The next offset to read once a batch is done.

        Raises:
            CheckpointUnfit: It is gone, of another format, or not of one Kafka source alone.
            StorageFailed: The storage does not answer.
        """
        name = f"offsets/{batch}"
        lines = _read(self.uri, self._files, name).splitlines()
        if not lines or lines[0].strip() != _KNOWN:
            found = lines[0][:20] if lines else "nothing"
            raise CheckpointUnfit(f"{self.uri}/{name} begins with {found!r}; {_KNOWN!r} is the form that is known")
        sources = [line for line in lines[2:] if line.strip()]  # the second line is about the batch itself
        if len(sources) != 1:
            raise CheckpointUnfit(f"the query of {self.uri} reads {len(sources)} sources, and not one topic alone")
        offsets = _kafka(sources[0])
        if offsets is None:
            raise CheckpointUnfit(f"the source of {self.uri} is not Kafka: {sources[0][:80]}")
        return offsets

    @cached_property
    def _files(self) -> FileSystem:
        return _folder(self.uri)


def _folder(uri: str) -> FileSystem:
    from deltalake.exceptions import DeltaError

    try:
        with storage_failures(uri):
            return storage(uri)
    except DeltaError as refused:  # no such folder, or an address of a kind that is not known
        raise CheckpointUnfit(f"{uri} cannot be opened: {said(refused)}") from refused


def _kafka(line: str) -> dict[TopicPartition, int] | None:
    """Offsets as Spark's Kafka source writes them, ``{"topic": {"0": 12}}``; ``None`` if they are none."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or not all(isinstance(of, dict) for of in told.values()):
        return None
    offsets = {(topic, number): at for topic, of in told.items() for number, at in of.items()}
    if not all(number.isdecimal() and type(at) is int and at >= 0 for (_, number), at in offsets.items()):
        return None
    return {TopicPartition(topic, int(number)): at for (topic, number), at in offsets.items()}


def _batches(files: FileSystem, folder: str) -> list[int]:
    """Numbers of the batches in a folder of the checkpoint; names of other files are none."""
    from pyarrow.fs import FileSelector, FileType

    found = files.get_file_info(FileSelector(folder, allow_not_found=True))
    return [int(f.base_name) for f in found if f.type is FileType.File and f.base_name.isdecimal()]


def _read(uri: str, files: FileSystem, name: str) -> str:
    with storage_failures(uri):
        try:
            with files.open_input_stream(name) as file:
                return bytes(file.read()).decode()
        except FileNotFoundError as gone:
            raise CheckpointUnfit(f"{uri}/{name} is not there") from gone
        except UnicodeDecodeError as other:
            raise CheckpointUnfit(f"{uri}/{name} is no text") from other
