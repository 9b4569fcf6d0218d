"""Searches files for the credentials that the S3 server of the tests has."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.tools.local.s3_server import ACCESS_KEY

KEYS = (ACCESS_KEY.encode(),)
"""The secret key begins with the access key."""


def files_with_keys(folder: Path) -> list[Path]:
    """The files in a folder that hold a key, as plain text."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if any(key in path.read_bytes() for key in KEYS)]
