"""``python -m kdi_assets.resources.code_server``: Dagster's code server, with runs that start fast, and a reload.

``dagster api grpc`` starts a new Python process for every run, which imports Dagster and the definitions again: seconds
of CPU for a drain that needs one. Here each run is a fork of a process that does nothing but have them. A run ends
when that process dies. Reload in the UI reads the documents again in this process. The options are those of
``dagster api grpc``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from argparse import ArgumentParser
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running

from kdi_assets.resources.dagster_internals import serve_grpc

PROGRAM = "python -m kdi_assets.resources.code_server"
DEFINITIONS = "KDI_DEFINITIONS_MODULE"


def warm_context() -> ForkServerContext:
    """Start the process that imports ``kdi_assets.resources.preloaded``; the context's processes are forks of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kdi_assets.resources.preloaded"])
    ensure_running()
    return context


def main() -> None:
    """Serve until SIGTERM or SIGINT, like ``dagster api grpc``."""
    options = ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--module-name", "-m", default="")
    os.environ[DEFINITIONS] = options.parse_known_args()[0].module_name
    serve_grpc(sys.argv[1:], program=PROGRAM, processes=warm_context)


if __name__ == "__main__":
    main()
