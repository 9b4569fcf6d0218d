"""Folders that a JAVA_HOME may name."""

from __future__ import annotations

from pathlib import Path


def told_java(directory: Path, version: str, *, home: Path | None = None) -> Path:
    """A ``JAVA_HOME`` whose java only prints that version and its path."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    told = f"    java.home = {home or directory}\\n    java.specification.version = {version}\\n"
    java.write_text(f"#!/bin/sh\nprintf '{told}' >&2\n")
    java.chmod(0o755)
    return directory
