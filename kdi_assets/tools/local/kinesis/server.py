"""A running server: its endpoint, its clock, and what tests order of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread

from kdi_assets.tools.local.broker import free_port, is_free
from kdi_assets.tools.local.foreground import run_until_stopped
from kdi_assets.tools.local.kinesis.faults import ApiCall, Behaviour, Fault, ServerClock
from kdi_assets.tools.local.kinesis.http_server import HttpServer, is_operation
from kdi_assets.tools.local.kinesis.state import REGION, KinesisState

USUAL_PORT = 14566
ACCESS_KEY = "kdi-loopback"
MOST_BYTES = 1 << 29


class KinesisServer:
    """A running server; its streams are only in memory, and end with it.

    Attributes:
        behaviour: May be changed at any time.
    """

    def __init__(self, *, port: int, clock: ServerClock, most_bytes: int) -> None:
        self._state = KinesisState(clock, most_bytes=most_bytes)
        self.behaviour: Behaviour = self._state.behaviour
        self._http = HttpServer(port, self._state)
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def environment(self) -> Mapping[str, str]:
        """Variables with which clients of AWS use the server; it takes any credentials."""
        return {
            "AWS_ENDPOINT_URL_KINESIS": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,  # boto3 reads this one only
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": f"{ACCESS_KEY}-secret",
        }

    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return self._state.now() / 1000

    def advance(self, seconds: float) -> None:
        """Move the server's clock forward."""
        with self._state.changed:
            self._state.clock.advance(seconds)
            self._state.changed.notify_all()

    def order(self, fault: Fault) -> None:
        """Let calls fail; of several faults of one operation, the first one ordered comes first.

        Raises:
            ValueError: It could never happen.
        """
        if not is_operation(fault.operation):
            raise ValueError(f"this server does not know {fault.operation}")
        fault.check()
        with self._state.changed:
            self._state.faults.append(fault)

    def unmet_faults(self) -> list[Fault]:
        """Withdraw the faults that were ordered and have not happened, or not often enough; returns them."""
        with self._state.changed:
            unmet = list(self._state.faults)
            self._state.faults.clear()
        return unmet

    def failures(self) -> list[BaseException]:
        """Exceptions that ended a call and should not have, since this was asked last."""
        with self._state.changed:
            failures = list(self._state.failures)
            self._state.failures.clear()
        return failures

    def expire_iterators(self) -> None:
        """Every iterator that was given out until now has expired."""
        with self._state.changed:
            self._state.iterators_from = self._state.iterators

    def calls(self, operation: str, *, stream: str = "", shard: str = "", consumer: str = "") -> int:
        """The number of calls so far, also of those refused; a part that is not given counts all."""
        asked = ApiCall(operation, stream, shard, consumer)
        with self._state.changed:
            return sum(
                count
                for call, count in self._state.calls.items()
                if all(part in ("", given) for part, given in zip(asked, call, strict=True))
            )

    def stop(self) -> None:
        """End it, its subscriptions and all connections."""
        with self._state.changed:
            self._state.stopped = True
            self._state.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._http.end_connections()


def start_kinesis(
    *, port: int | None = None, clock: ServerClock | None = None, most_bytes: int = MOST_BYTES
) -> KinesisServer:
    """Start a server on the loopback.

    Args:
        port: The preferred port; if it is taken, and by default, a free one.
        clock: By default the machine's time.
        most_bytes: Memory for records; when it is used up, puts are refused.
    """
    return KinesisServer(port=free_port(port), clock=clock or ServerClock(), most_bytes=most_bytes)


def run_kinesis(*, port: int, report: Callable[[str], None]) -> None:
    """Run a server in the foreground until SIGTERM or SIGINT.

    Args:
        report: Called with each line about how to reach the server, once it answers.
    """

    def start() -> KinesisServer:
        taken = "" if is_free(port) else f" (port {port} is taken)"
        server = start_kinesis(port=port)
        report(f"Kinesis answers on {server.endpoint}{taken}, its streams are only in memory")
        for name, value in server.environment().items():
            report(f"export {name}={value}")
        return server

    run_until_stopped(start)
