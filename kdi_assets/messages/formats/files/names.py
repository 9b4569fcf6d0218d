"""The names of files in a message: plain paths, our announcements, S3's notifications."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

from kdi_assets.documents.model.announcement import NotAnAnnouncement, parse_announcement
from kdi_assets.documents.model.message_format import Files

_CREATED = ("ObjectCreated:", "s3:ObjectCreated:")


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """What one message names.

    Attributes:
        uris: The files in their order, as ``canonical`` spells them; each as often as it is named.
        reason: Why the message is a dead letter; empty if it is none.
        detail: The file, or what is wrong with the message; the dead letter has it as its field.
    """

    uris: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""

    @property
    def names_nothing(self) -> bool:
        """Whether the message has nothing to read, and that is right."""
        return not (self.uris or self.reason)


class _RefusedMessage(ValueError):
    """The message is a dead letter, with this reason and detail."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def named_files(value: bytes, format_: Files) -> NamedFiles:
    """The files that a message's value names; a dead letter if any of them may not be read."""
    try:
        found = _NAMES[format_.names](value)
        return NamedFiles(tuple(_allowed(path, format_.root) for path in found))
    except _RefusedMessage as refused:
        return NamedFiles((), refused.reason, refused.detail.encode(errors="replace").decode())


def canonical(path: str) -> str:
    """A path or URI in one spelling: ``s3://…``, or an absolute path of this machine.

    Raises:
        ValueError: It is neither.
    """
    scheme, _, rest = path.partition("://")
    if rest and scheme in ("s3", "s3a"):
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise ValueError("does not name an object")
        return f"s3://{bucket}/{key}"
    if path.startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise ValueError("lies on another machine")
        path = unquote(parts.path)
    if not path.startswith("/"):
        raise ValueError("is neither an absolute path nor a URI of S3")
    return "/" + normpath(path).lstrip("/")


def _allowed(path: str, roots: Sequence[str]) -> str:
    """The file as ``canonical`` spells it.

    Raises:
        _RefusedMessage: It lies outside of all roots, nobody knows where, or Spark does not read files of such a name.
    """
    if len(roots) == 1 and "://" not in path and not path.startswith(("/", "file:")):
        path = f"{roots[0].rstrip('/')}/{path}"
    if ".." in path.split("/") or "\0" in path:
        raise _RefusedMessage("outside_root", path)
    try:
        uri = canonical(path)
        uri.encode()  # half a character of JSON is in no file's name
        within = [canonical(f"{root.rstrip('/')}/_")[:-1] for root in roots]
    except ValueError as wrong:
        raise _RefusedMessage("no_address", path) from wrong
    parts = uri.partition("://")[2].split("/") if "://" in uri else uri[1:].split("/")
    # Spark leaves out files with such names, and Hadoop's paths have no empty part and no ".".
    if parts[-1].startswith(("_", ".")) or parts[-1].endswith("._COPYING_") or {"", "."} & set(parts):
        raise _RefusedMessage("no_address", path)
    if not uri.startswith(tuple(within)):
        raise _RefusedMessage("outside_root", path)
    return uri


def _paths(value: bytes) -> list[str]:
    try:
        lines = [line.strip() for line in value.decode("utf-8").splitlines()]
    except UnicodeDecodeError as wrong:
        raise _RefusedMessage("invalid_utf8") from wrong
    if not (paths := [line for line in lines if line]):
        raise _RefusedMessage("names_no_file")
    return paths


def _of_announcement(value: bytes) -> list[str]:
    try:
        said = parse_announcement(value)
    except NotAnAnnouncement as wrong:
        raise _RefusedMessage("not_an_announcement", str(wrong)) from wrong
    if not said.data_change:
        return []  # rows moved to other files
    # Releases before this one announced a RESTORE that only takes files back as one that only adds.
    if not said.only_adds or said.removed or said.operation == "RESTORE":
        # Rows of the added files are in others that were announced before, and would be in the table twice; rows of the
        # removed files are in the table, and would stay.
        raise _RefusedMessage(
            "listed_again" if said.kind == "listing" else "replaces_rows", f"{said.table} v{said.version}"
        )
    return [file.path for file in said.added]


def _of_s3_events(value: bytes) -> list[str]:
    try:
        said = json.loads(value)
        if said.get("Event") == "s3:TestEvent":
            return []  # S3 sends it once, when notifications are switched on
        records = [_of_record(record) for record in said["Records"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise _RefusedMessage("not_an_s3_event", str(wrong)) from wrong
    return [uri for uri in records if uri]


def _of_record(record: Mapping[str, Any]) -> str:
    """The URI of the created object; empty for other events and for markers of folders.

    Source: Amazon S3, "Event message structure": the key is URL-encoded, a blank is a plus.
    """
    bucket, key = record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"], errors="strict")
    created = record["eventName"].startswith(_CREATED) and not key.endswith("/")
    return f"s3://{bucket}/{key}" if created else ""


_NAMES = {"paths": _paths, "announcements": _of_announcement, "s3_events": _of_s3_events}
