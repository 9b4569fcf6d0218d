"""The text of .proto files to descriptors, by protoc itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kdi_assets.formats.protobuf.descriptors import DescriptorMistake

SECONDS = 60


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
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", *options, file],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode:
            raise DescriptorMistake(_said(done.stderr).replace(f"{folder}/", ""), "what protoc compiles")
        return written.read_bytes()


def _said(stderr: str) -> str:
    """protoc's first complaint."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "warning:" not in line.lower()), "protoc says nothing")
