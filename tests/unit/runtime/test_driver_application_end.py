"""A warm driver whose cluster has ended its application, without a JVM: who may still attach, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.errors import KdiError
from kdi_assets.runtime.driver import clients, driver
from kdi_assets.runtime.driver.clients import Clients
from kdi_assets.runtime.driver.control import ControlConnection
from kdi_assets.runtime.driver.driver import Ending, run_driver
from kdi_assets.runtime.errors import ApplicationEnded, DriverGone, DriverJvmEnded
from kdi_assets.settings import Settings

ENDED = ApplicationEnded(master="yarn", application="application_7", said="KILLED: by user lake")


class FakeClients:
    """Takes every client, until it is closed."""

    def __init__(self, session: object, **others: object) -> None:
        self._closed = False

    def idle_seconds(self) -> None:
        return None

    def close(self) -> None:
        self._closed = True

    def on_connect(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        return None if self._closed else {}

    def on_message(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        raise AssertionError

    def on_disconnect(self, hello: dict[str, Any]) -> None:
        """Nothing of it is left."""


@pytest.fixture
def run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], KdiError | None]], Ending]:
    """Runs a driver whose application has ended; takes what is called to ask YARN why."""
    parameters = SimpleNamespace(auth_token="secret", port=1)

    def watched_jvm(session: object, wakes: SimpleQueue[Ending | None]) -> Any:
        wakes.put(Ending.APPLICATION_ENDED)
        return SimpleNamespace(returncode=143)

    def run(asks_yarn: Callable[[], KdiError | None]) -> Ending:
        monkeypatch.setattr(driver, "start_spark", lambda *_, **__: SimpleNamespace(version="4.2.0"))
        monkeypatch.setattr(driver, "stop_spark", lambda session: None)
        monkeypatch.setattr(driver, "gateway_of", lambda session: SimpleNamespace(gateway_parameters=parameters))
        monkeypatch.setattr(driver, "Clients", FakeClients)
        monkeypatch.setattr(driver, "_watched_jvm", watched_jvm)
        monkeypatch.setattr(driver, "ended_application", asks_yarn)
        return run_driver(Settings(tmp_path, "/lake"), report=lambda line: None)

    return run


def test_nobody_attaches_while_the_driver_asks_yarn_why(
    run_ended: Callable[[Callable[[], KdiError | None]], Ending], tmp_path: Path
) -> None:
    """Purpose: YARN may take many seconds, and a client that attached meanwhile would use up its retry."""

    def asks_yarn() -> KdiError:
        with pytest.raises(DriverGone), closing(ControlConnection(tmp_path, ask="attach")):
            pass
        return ENDED

    with pytest.raises(ApplicationEnded) as ended:
        run_ended(asks_yarn)

    assert ended.value is ENDED


def test_a_driver_that_cannot_ask_why_ends_with_an_error_too(
    run_ended: Callable[[Callable[[], KdiError | None]], Ending],
) -> None:
    """Purpose: with exit code 0 its supervisor would start no other one."""
    with pytest.raises(DriverJvmEnded, match="ended with code 143"):
        run_ended(lambda: None)


def test_a_client_is_refused_as_soon_as_the_application_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: the driver looks only now and then; the client takes another driver, or waits for the next one."""
    found: list[object] = [None, "the ended context"]
    of_driver = clients_of(monkeypatch, ended=lambda: found.pop(0))

    before, after = (of_driver.on_connect({"ask": "attach", "pid": 7, "group": group}) for group in ("a", "b"))

    assert (before, after) == ({"turn": 0}, None)


def test_a_client_of_a_context_that_takes_no_calls_has_left_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: Spark refuses to cancel jobs in a context that has ended; the driver would wait for its client."""
    hello, served = {"ask": "attach", "pid": 7, "group": "a"}, list[int]()
    of_driver = clients_of(monkeypatch, left=served.append)
    of_driver.on_connect(hello)

    of_driver.on_disconnect(hello)

    assert served == [1]
    assert of_driver.idle_seconds() is not None


def clients_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    ended: Callable[[], object] = lambda: None,
    left: Callable[[int], None] = lambda served: None,
) -> Clients:
    """The clients of a driver whose context takes no calls."""
    monkeypatch.setattr(clients, "ended_context", ended)
    monkeypatch.setattr(clients, "jvm_context", lambda session: None)
    monkeypatch.setattr(clients, "gateway_of", lambda session: None)
    monkeypatch.setattr(clients, "ClientObjects", lambda gateway: SimpleNamespace(release=lambda: None))
    session: Any = SimpleNamespace(catalog=None)
    return Clients(session, stop=lambda: None, left=left)
