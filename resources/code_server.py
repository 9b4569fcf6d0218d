"""``python -m resources.code_server``: Dagster's code server, whose runs do not start from nothing.

``dagster api grpc`` starts a new Python for every run, which imports Dagster and the definitions again: seconds of CPU
for a drain that needs one. Here runs are forked off a process that has imported both and does nothing else; a process
for each run they stay, and they die with the one they were forked off. All options are those of ``dagster api grpc``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from argparse import ArgumentParser
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from typing import Any

from dagster._cli.api import grpc_command
from dagster._grpc import server

DEFINITIONS = "KDI_DEFINITIONS_MODULE"


class WarmApiServer(server.DagsterApiServer):
    """Makes its runs' processes in another way, and does all else as Dagster does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._mp_ctx = warm_context()  # type: ignore[assignment]


def warm_context() -> ForkServerContext:
    """Processes forked off one that has imported ``resources.preloaded``, which is being started."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["resources.preloaded"])
    ensure_running()
    return context


def main() -> None:
    """Serve until SIGTERM or SIGINT, as ``dagster api grpc``."""
    options = ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--module-name", "-m", default="")
    os.environ[DEFINITIONS] = options.parse_known_args()[0].module_name
    server.DagsterApiServer = WarmApiServer  # type: ignore[misc]
    grpc_command(sys.argv[1:], prog_name="python -m resources.code_server")


if __name__ == "__main__":
    main()
