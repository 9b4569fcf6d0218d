"""Answers of a registry in files: the schema of an id never changes, and each run is a new process."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.messages.formats.registry.schema import Referenced, Schema
from kdi_assets.runtime.whole_files import replace_file

FORMAT = 1
log = logging.getLogger(__name__)


class SchemaFiles:
    """One file for each id and each subject, replaced as a whole, with its digest in the first line.

    A file that is damaged or of another format counts as absent, and the registry is asked again. A file that cannot be
    written costs a warning, and a request in the next process.
    """

    def __init__(self, home: Path, registry: Registry) -> None:
        """Name the folder; nothing is read or made yet.

        Its name depends on the user: a service may have one address for many customers, and an id means another schema
        for each customer.
        """
        self._origin = f"{registry.url} {registry.properties.get('username', '')}"
        host = re.sub(r"[^A-Za-z0-9.-]", "_", urlsplit(registry.url).netloc)
        self.folder = home / "registry" / f"{host}-{_digest(self._origin.encode())[:12]}"

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of an id, if there is a file."""
        content = self._read(self._schema_path(schema_id))
        if content is None:
            return None
        references = tuple(Referenced(**reference) for reference in content.pop("references"))
        return Schema(**content, references=references)

    def keep_schema(self, schema: Schema) -> None:
        """Write the schema of its id."""
        self._write(self._schema_path(schema.id), asdict(schema))

    def versions(self, subject: str) -> tuple[dict[int, int], int | None]:
        """The known ids of a subject by version, and the version that was the latest."""
        content = self._read(self._subject_path(subject)) or {"ids": {}, "latest": None}
        return {int(number): schema_id for number, schema_id in content["ids"].items()}, content["latest"]

    def keep_versions(self, subject: str, ids: Mapping[int, int], *, latest: int | None) -> None:
        """Write the ids of a subject by version, and the latest version if it is known."""
        content = {"subject": subject, "ids": {str(number): ids[number] for number in sorted(ids)}, "latest": latest}
        self._write(self._subject_path(subject), content)

    def count(self) -> int:
        """How many schemas there are."""
        return sum(1 for _ in self.folder.glob("ids/*.json"))

    def _schema_path(self, schema_id: int) -> Path:
        return self.folder / "ids" / f"{schema_id}.json"

    def _subject_path(self, subject: str) -> Path:
        return self.folder / "subjects" / f"{_digest(subject.encode())[:24]}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            digest, _, body = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as unreadable:
            log.warning("%s cannot be read (%s); the registry is asked again", path, unreadable)
            return None
        if digest.decode("ascii", "replace") != _digest(body):
            log.warning("%s is damaged; the registry is asked again", path)
            return None
        file: dict[str, Any] = json.loads(body)
        # A copy under another name, or a file of a later release: undamaged, but not this answer.
        if (file["format"], file["of"], file["file"]) != (FORMAT, self._origin, path.name):
            return None
        content: dict[str, Any] = file["content"]
        return content

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        file = {"format": FORMAT, "of": self._origin, "file": path.name, "content": content}
        body = json.dumps(file, ensure_ascii=False, indent=1).encode()
        try:
            replace_file(path, _digest(body).encode() + b"\n" + body)
        except OSError as refused:
            log.warning("%s cannot be written (%s); the next process asks the registry again", path, refused)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
