"""Topics as Dagster sources: what they hold, observed."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

import dagster as dg

from kdi_assets.components.names import identifier, topic_key
from kdi_assets.components.run_failures import refusals_shown
from kdi_assets.monitoring.backlog_reader import read_backlogs
from kdi_assets.settings import Settings
from kdi_assets.sources.kafka.topic import TopicState, read_topic
from kdi_assets.stream.stream import Cluster, Stream, offsets_digest


def topic_assets(streams: Iterable[Stream]) -> list[dg.AssetsDefinition]:
    """One source asset per topic, however many streams read it."""
    readers: dict[dg.AssetKey, list[Stream]] = {}
    for stream in streams:
        readers.setdefault(topic_key(stream.cluster, stream.topic), []).append(stream)
    return [topic_asset(own[0].cluster, own[0].topic, readers=own) for own in readers.values()]


def topic_asset(cluster: Cluster, topic: str, *, readers: Sequence[Stream] = ()) -> dg.AssetsDefinition:
    """The topic as an observable source asset: its data version changes when a message arrives.

    Args:
        readers: Streams whose backlog an observation says.
    """
    key = topic_key(cluster, topic)
    spec = dg.AssetSpec(
        key,
        description=f"Kafka topic {topic} of cluster {cluster.name} ({cluster.bootstrap_servers}).",
        group_name="kafka",
        kinds={"kafka"},
        metadata={"topic": topic, "cluster": cluster.name},
    )
    with warnings.catch_warnings():
        # Beta in 1.13. The form for one asset names its op by the key alone: topics a.b and a-b would be refused.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_observable_source_asset(name=identifier(*key.path), specs=[spec])  # type: ignore[untyped-decorator]
        def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
            with refusals_shown(context):
                state = read_topic(cluster, topic)
                backlogs = read_backlogs(readers, lake=Settings.from_environment().lake)
            return dg.ObserveResult(
                asset_key=key,
                data_version=dg.DataVersion(offsets_digest({tp: held.end for tp, held in state.partitions.items()})),
                metadata={**_topic_metadata(state), **{f"backlog of {b.stream}": b.offsets for b in backlogs}},
            )

    return cast(dg.AssetsDefinition, observed)


def _topic_metadata(state: TopicState) -> dict[str, Any]:
    """What the topic holds, in offsets."""
    partitions = sorted(state.partitions.items())
    return {
        "end_offsets": dg.MetadataValue.json({str(tp): offsets.end for tp, offsets in partitions}),
        "offsets_kept": sum(offsets.end - offsets.earliest for _, offsets in partitions),
        "open_transaction_offsets": sum(offsets.high_watermark - offsets.end for _, offsets in partitions),
        "topic_id": state.topic_id,
    }
