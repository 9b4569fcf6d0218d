"""Prints the versions of installed packages, in one line."""

from __future__ import annotations

import sys
from importlib.metadata import version

if __name__ == "__main__":
    sys.stdout.write(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]) + "\n")
