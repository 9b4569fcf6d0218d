"""`kdi doctor` over a real broker, as a person types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.settings import Settings
from tests.conftest import TopicFactory
from tests.documents import written
from tests.typed import Answer, Kdi, typed

STREAM = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {topic}, table: bronze/{topic}, schema: "id bigint", date: current_date()}}
"""


@pytest.fixture
def kdi(environment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    """Runs `kdi doctor` in this process, for a user who has set the required variables."""
    for name in ("DAGSTER_HOME", "KDI_DRIVER", "KDI_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)
    return typed(monkeypatch, capsys, "doctor")


def finding(answer: Answer, examination: str, of: str) -> dict[str, Any]:
    """The JSON object of one finding."""
    return next(f for f in answer.objects if (f["examination"], f["of"]) == (examination, of))


def describe(defs: Path, topic: str) -> None:
    written(defs, **{topic: STREAM.format(topic=topic)})


@pytest.mark.core
def test_where_everything_is_there_every_line_says_ok(kdi: Kdi, defs: Path, topic: TopicFactory) -> None:
    name = topic(2)
    describe(defs, name)

    answer = kdi()

    head, *lines = answer.out.splitlines()
    assert answer.code == 0, answer.out
    assert head.split() == ["EXAMINATION", "OF", "VERDICT", "FOUND"]
    seen = {line.split()[0] for line in lines}
    expected = {"documents", "disk", "packages", "java", "jars", "storage", "clock", "brokers", "rights", "stream"}
    assert seen == expected | {"retention"}


def test_a_missing_topic_is_for_someone_to_decide_and_the_other_stream_is_fine(
    kdi: Kdi, defs: Path, topic: TopicFactory
) -> None:
    name = topic(1)
    describe(defs, name)
    describe(defs, "no_such_topic")

    answer = kdi("--json")

    assert answer.code == 1
    assert finding(answer, "rights", "no_such_topic")["error"]["type"] == TopicMissing.__name__
    assert finding(answer, "stream", "bronze/no_such_topic")["verdict"] == "wrong"
    assert finding(answer, "stream", f"bronze/{name}")["verdict"] == "ok"
    assert kdi(name).code == 0
