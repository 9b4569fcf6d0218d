"""What a registry ever answered, in files: an id means the same for ever, and a run's process is always a new one."""

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

from kdi_assets.formats.registry.schema import Referenced, Schema
from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.stream.connections import Registry

FORMAT = 1
log = logging.getLogger(__name__)


class SchemaFiles:
    """One file for each id and each subject, whole or not at all, with its own digest in the first line.

    A file that is damaged, or of another format, counts as absent: what it held is asked for again. Nobody needs the
    files, so one that cannot be written costs a question in the next process, and a warning.
    """

    def __init__(self, home: Path, registry: Registry) -> None:
        """Name the folder; nothing is read or made yet.

        The user is part of its name: services with one address for many customers tell them apart by their keys, and
        an id of one customer means something else to another.
        """
        self._of = f"{registry.url} {registry.properties.get('username', '')}"
        host = re.sub(r"[^A-Za-z0-9.-]", "_", urlsplit(registry.url).netloc)
        self.folder = home / "registry" / f"{host}-{_digest(self._of.encode())[:12]}"

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of an id, if it was ever kept."""
        content = self._read(self._schema_path(schema_id))
        if content is None:
            return None
        references = tuple(Referenced(**reference) for reference in content.pop("references"))
        return Schema(**content, references=references)

    def keep_schema(self, schema: Schema) -> None:
        """Keep what an id stands for."""
        self._write(self._schema_path(schema.id), asdict(schema))

    def versions(self, subject: str) -> tuple[dict[int, int], int | None]:
        """Ids by version of a subject, as far as they were ever told, and the version that was the latest then."""
        content = self._read(self._subject_path(subject)) or {"ids": {}, "latest": None}
        return {int(number): schema_id for number, schema_id in content["ids"].items()}, content["latest"]

    def keep_versions(self, subject: str, ids: Mapping[int, int], *, latest: int | None) -> None:
        """Keep the ids of a subject by version, and the latest version, if that is known."""
        content = {"subject": subject, "ids": {str(number): ids[number] for number in sorted(ids)}, "latest": latest}
        self._write(self._subject_path(subject), content)

    def count(self) -> int:
        """How many schemas are kept."""
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
        told: dict[str, Any] = json.loads(body)
        # A copy under another name, or a file of a later release: whole, and not the answer to this question.
        if (told["format"], told["of"], told["file"]) != (FORMAT, self._of, path.name):
            return None
        content: dict[str, Any] = told["content"]
        return content

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        told = {"format": FORMAT, "of": self._of, "file": path.name, "content": content}
        body = json.dumps(told, ensure_ascii=False, indent=1).encode()
        try:
            replace_file(path, _digest(body).encode() + b"\n" + body)
        except OSError as refused:
            log.warning("%s cannot be written (%s); the next process asks the registry again", path, refused)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
