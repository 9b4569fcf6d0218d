"""The text of .proto files to descriptors, by protoc itself."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from kdi_assets.formats.protobuf.descriptors import DescriptorMistake
from kdi_assets.formats.registry.schema import Schema

SECONDS = 60
_LOGGED = re.compile(r"^[IW]\d{4} |warning:", re.IGNORECASE)


def compiled(file: str, *, folder: Path) -> bytes:
    """The set of descriptors of a file and of all that it imports.

    In a process of its own, which takes a tenth of a second: protoc says what is wrong on its standard error alone, and
    what it is given may come from elsewhere.

    Args:
        file: Path from ``folder``, with slashes, as another file there would import it.
        folder: Where imports begin; Protobuf's own files are always found.

    Raises:
        DescriptorMistake: protoc refuses it; what it says.
    """
    with TemporaryDirectory() as temporary:
        written = Path(temporary, "set")
        options = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={written}"]
        protoc = [sys.executable, "-m", "grpc_tools.protoc", *options, file]
        try:
            done = subprocess.run(protoc, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            raise DescriptorMistake(f"protoc did not end within {SECONDS} seconds") from late
        if done.returncode:
            raise DescriptorMistake(_said(done.stderr).replace(f"{folder}/", ""), "what protoc compiles")
        return written.read_bytes()


@lru_cache(maxsize=512)
def schema_descriptors(schema: Schema) -> bytes:
    """The set of descriptors of a registry's schema, and of all that it refers to.

    Within this process, in four milliseconds: there are as many schemas as a topic had in its life.

    Raises:
        DescriptorMistake: It is no schema of Protobuf, or protoc refuses it.
    """
    from grpc_tools import protoc

    if schema.type != "PROTOBUF":
        raise DescriptorMistake(f"schema {schema.id} is of type {schema.type}")
    file = f"schema-{schema.id}.proto"
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        for name, text in [*((r.name, r.text) for r in schema.references), (file, schema.text)]:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise DescriptorMistake(f"schema {schema.id} refers to {name}, which is no path to import")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as refused:  # one name is a folder of another
                raise DescriptorMistake(f"schema {schema.id} refers to {name}, which can be no file") from refused
        written = Path(temporary, "set")
        googles = Path(protoc.__file__).parent / "_proto"
        options = [f"-I{folder}", f"-I{googles}", "--include_imports", f"--descriptor_set_out={written}"]
        if protoc.main(["protoc", *options, file]):
            return compiled(file, folder=folder)  # it refuses again, and is heard
        return written.read_bytes()


def _said(stderr: str) -> str:
    """protoc's first complaint; what its logging says is none."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if not _LOGGED.search(line)), "protoc says nothing")
