"""`make dev`: broker, PostgreSQL, warm driver, generator and Dagster's UI, until Ctrl-C; on the demo's state."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from demo.parts import (
    CodeServer,
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

UI_SECONDS = 180.0
WHAT_TO_DO = (
    "The UI is up: {url}",
    "  {url}/assets/bronze/web_requests is the table: a run drains it about every 20 s, the first within half a minute",
    "  {url}/asset-groups shows how it goes on: silver, gold, PostgreSQL",
    "  .venv/bin/kdi status, in another terminal, shows the same without the UI; .venv/bin/kdi psql opens the database",
    "  docs/tour.md says what the pages show; Ctrl-C ends it all",
)


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
            start_database(state.postgres, state.lake, stack)
            code_server = CodeServer(state, stack)  # after the database: its last runs end first
            generator = start_command(state, stack, "generator", "kdi", "generate", f"--rate={RATE}", f"--bad={BAD}")
            code_server.await_listening()
            dagster, url = start_ui(state, stack, code_server.workspace)
            driver.await_ready()
            check_running(generator=generator, code_server=code_server.child, dagster=dagster)
            if slow := dagster.await_answer(lambda: answers(url), seconds=UI_SECONDS):
                raise PartFailed(f"Dagster's UI does not answer on {url}: {slow}")
            for line in WHAT_TO_DO:
                say(line.format(url=url))
            while True:
                check_running(generator=generator, code_server=code_server.child, dagster=dagster)
                if broker.exit_code() is not None:
                    raise broker.refusal("ended")
                driver.revive()
                time.sleep(1)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nLogs: {state.logs}/*.log and {state.broker}/broker.log")


def start_ui(state: State, stack: ExitStack, workspace: Path) -> tuple[Child, str]:
    """Dagster's webserver and daemon over the code server of the workspace, and where they will answer."""
    port = free_port(UI_PORT)
    taken = "" if port == UI_PORT else f" (port {UI_PORT} is taken)"
    # Otherwise `dagster dev` would put a server of its own before each code server, for a reload that ours does itself.
    direct = "--use-legacy-code-server-behavior"
    child = start_command(
        state, stack, "dagster", "dagster", "dev", direct, f"--workspace={workspace}", f"--port={port}"
    )
    url = f"http://127.0.0.1:{port}"
    say(f"Dagster's UI will answer on {url}{taken}; Ctrl-C ends it all")
    return child, url


def answers(url: str) -> bool:
    """Whether the webserver answers."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=2)
    try:
        connection.request("GET", "/server_info")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
