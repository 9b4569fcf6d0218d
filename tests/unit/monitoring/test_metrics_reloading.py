"""`kdi metrics serve` follows the documents of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.operate.monitoring.metrics.reloading import reloading_collector
from tests.documents import CLUSTER, stream, written


class Names(Collector):
    """A sample for each stream."""

    def __init__(self, loaded: LoadedFolder) -> None:
        self.names = list(loaded.streams)

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("loaded", "a stream", labels=["stream"])
        for name in self.names:
            family.add_metric([name], 1.0)
        yield family


def names(collector: Collector) -> list[str]:
    return [sample.labels["stream"] for family in collector.collect() for sample in family.samples]


def test_a_scrape_has_the_streams_of_documents_that_came_or_went_since_the_last(tmp_path: Path) -> None:
    folder = written(tmp_path, kafka=CLUSTER, a=stream("bronze/a"))
    read: list[str] = []
    made: list[LoadedFolder] = []

    def collectors(loaded: LoadedFolder) -> list[Collector]:
        made.append(loaded)
        return [Names(loaded)]

    collector = reloading_collector(folder, collectors, report=read.append)
    first = names(collector), names(collector)
    written(tmp_path, b=stream("bronze/b"))
    second = names(collector), names(collector)
    (folder / "a" / "defs.yaml").unlink()

    assert first == (["bronze/a"], ["bronze/a"])
    assert second == (["bronze/a", "bronze/b"], ["bronze/a", "bronze/b"])
    assert names(collector) == ["bronze/b"]
    assert len(made) == 3, "unchanged files are not read again: counters would start over"
    assert read == [f"documents of {count} were read" for count in ("1 stream", "2 streams", "1 stream")]


def test_a_failure_that_nobody_expected_is_said_and_the_documents_of_before_go_on(tmp_path: Path) -> None:
    folder = written(tmp_path, kafka=CLUSTER, a=stream("bronze/a"))
    read: list[str] = []

    def collectors(loaded: LoadedFolder) -> list[Collector]:
        if len(loaded.streams) == 2:
            raise OSError("no space left")
        return [Names(loaded)]

    collector = reloading_collector(folder, collectors, report=read.append)
    written(tmp_path, b=stream("bronze/b"))
    failed = names(collector), names(collector)
    written(tmp_path, c=stream("bronze/c"))

    assert failed == (["bronze/a"], ["bronze/a"])
    assert read[1:] == ["the changed documents are not used: OSError: no space left"]
    assert names(collector) == ["bronze/a", "bronze/b", "bronze/c"]


def test_documents_with_a_mistake_are_said_once_and_those_of_before_go_on(tmp_path: Path) -> None:
    folder = written(tmp_path, kafka=CLUSTER, a=stream("bronze/a"))
    read: list[str] = []
    collector = reloading_collector(folder, lambda loaded: [Names(loaded)], report=read.append)

    written(tmp_path, b=stream("bronze/b", record="schema: 7"))
    broken = names(collector), names(collector)
    (said,) = read[1:]
    written(tmp_path, b=stream("bronze/b"))

    assert broken == (["bronze/a"], ["bronze/a"])
    assert said.startswith("the changed documents are not used: ") and "b/defs.yaml" in said
    assert names(collector) == ["bronze/a", "bronze/b"]
    written(tmp_path, b="type: [")
    with pytest.raises(Mistakes):
        reloading_collector(folder, lambda loaded: [Names(loaded)], report=read.append)
