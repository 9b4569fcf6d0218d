"""`make dev`: broker, PostgreSQL, warm driver, generator and Dagster's UI, until Ctrl-C; on the demo's state."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack

from demo.parts import (
    WORKSPACE,
    PartFailed,
    State,
    WarmDriver,
    check_running,
    say,
    start_command,
    start_database,
    start_kafka,
    stopped_at_the_end,
)
from demo.watch import cancel_orphans
from kdi_assets.errors import KdiError
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port

UI_PORT = 3000
RATE, BAD = 50, 0.01  # messages a second, so that a run is due every twenty seconds


def main() -> None:
    """Keep it all running."""
    state = State.of_checkout()
    state.refuse_if_used(then="make dev")
    state.prepare()
    cancel_orphans()
    try:
        with stopped_at_the_end() as stack:
            driver = WarmDriver(state, stack)
            broker = start_kafka(state, stack)
            start_database(state.postgres, stack)
            generator = start_command(state, stack, "generator", "kdi", "generate", f"--rate={RATE}", f"--bad={BAD}")
            port = free_port(UI_PORT)
            dagster = start_ui(state, stack, port)
            driver.await_ready()
            answers = False
            while True:
                check_running(generator=generator, dagster=dagster)
                if not answers and (answers := is_listening(port)):
                    say(f"Dagster's UI answers on http://127.0.0.1:{port}")
                if broker.exit_code() is not None:
                    raise broker.refusal("ended")
                driver.revive()
                time.sleep(1)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nLogs: {state.logs}/*.log and {state.broker}/broker.log")


def start_ui(state: State, stack: ExitStack, port: int) -> Child:
    """Dagster's webserver, daemon and code server."""
    taken = "" if port == UI_PORT else f" (port {UI_PORT} is taken)"
    child = start_command(state, stack, "dagster", "dagster", "dev", f"--workspace={WORKSPACE}", f"--port={port}")
    say(f"starting Dagster's UI on http://127.0.0.1:{port}{taken}; Ctrl-C ends it all")
    return child


def is_listening(port: int) -> bool:
    """Whether a process takes connections to a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
