"""How long a session waits for an executor of Kubernetes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.runtime import kubernetes
from kdi_assets.runtime.errors import NoExecutorPod
from kdi_assets.runtime.kubernetes import await_executor


def session_of(master: str, **settings: str) -> Any:
    """A session as the wait sees it."""
    conf = SimpleNamespace(get=lambda name, default=None: settings.get(name.rpartition(".")[2], default))
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, applicationId="spark-1", getConf=lambda: conf))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Answers that are left to the question for an executor; then there is none. Time costs nothing."""
    answers: list[bool] = []
    monkeypatch.setattr(kubernetes, "has_executor", lambda session: answers.pop(0) if answers else False)
    monkeypatch.setattr(kubernetes, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(kubernetes, "PATIENCE_SECONDS", 0.01)
    return answers


def test_a_session_goes_on_once_it_has_an_executor(asked: list[bool]) -> None:
    asked[:] = [False, False, True]

    await_executor(session_of("k8s://https://kubernetes.default.svc"))

    assert asked == []


def test_a_session_that_gets_none_is_refused_and_says_where_to_look(asked: list[bool]) -> None:
    with pytest.raises(NoExecutorPod, match="the namespace lake .*(?s:.)*spark-app-selector=spark-1"):
        await_executor(session_of("k8s://https://kubernetes.default.svc", namespace="lake"))


@pytest.mark.parametrize(
    "session",
    [session_of("local[*]"), session_of("yarn"), session_of("k8s://https://kubernetes.default.svc", enabled="true")],
    ids=["one machine", "YARN", "dynamic allocation"],
)
def test_where_none_is_needed_yet_nothing_is_asked(session: Any, asked: list[bool]) -> None:
    asked[:] = [False]

    await_executor(session)

    assert asked == [False]
