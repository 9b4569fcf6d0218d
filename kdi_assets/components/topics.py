"""Topics as observable source assets."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import dagster as dg

from kdi_assets.components.names import identifier, topic_key
from kdi_assets.components.run_failures import refusals_as_failures
from kdi_assets.documents.model.stream import Stream, offsets_digest
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.settings import Settings


def topic_assets(streams: Iterable[Stream]) -> list[dg.AssetsDefinition]:
    """One source asset per topic, however many streams read it."""
    readers: dict[dg.AssetKey, list[Stream]] = {}
    for stream in streams:
        readers.setdefault(topic_key(stream.cluster, stream.topic), []).append(stream)
    return [_topic_asset(key, own) for key, own in readers.items()]


def _topic_asset(key: dg.AssetKey, readers: Sequence[Stream]) -> dg.AssetsDefinition:
    """The topic with the backlogs of its readers; its data version changes when a message arrives."""
    cluster, topic = readers[0].cluster, readers[0].topic
    spec = dg.AssetSpec(
        key,
        description=f"{cluster.system.title()} topic {topic} of cluster {cluster.name} ({cluster.address}).",
        group_name=cluster.system,
        kinds={cluster.system},
        metadata={"topic": topic, "cluster": cluster.name},
    )
    with warnings.catch_warnings():
        # Beta in 1.13. The decorator for one asset names its op by the key: topics a.b and a-b would clash.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_observable_source_asset(name=identifier(*key.path), specs=[spec])  # type: ignore[untyped-decorator]
        def observed(context: dg.AssetExecutionContext) -> dg.ObserveResult:
            with refusals_as_failures(context):
                state = source_of(readers[0]).topic(topic)
                backlogs = read_backlogs(readers, lake=Settings.from_environment().lake)
            if state.as_of:  # its offsets are those that the tables have read
                seen = backlogs[0].topic_partitions.items()
                state = replace(state, partitions={tp: BrokerOffsets(b.earliest, b.end, b.end) for tp, b in seen})
            return dg.ObserveResult(
                asset_key=key,
                data_version=dg.DataVersion(offsets_digest({tp: held.end for tp, held in state.partitions.items()})),
                metadata={**_topic_metadata(state), **{f"backlog of {b.stream}": b.offsets for b in backlogs}},
            )

    return cast(dg.AssetsDefinition, observed)


def _topic_metadata(state: TopicState) -> dict[str, Any]:
    """Offsets that the topic holds."""
    partitions = sorted(state.partitions.items())
    return {
        "end_offsets": dg.MetadataValue.json({str(tp): offsets.end for tp, offsets in partitions}),
        "offsets_kept": sum(offsets.end - offsets.earliest for _, offsets in partitions),
        "open_transaction_offsets": sum(offsets.high_watermark - offsets.end for _, offsets in partitions),
        "topic_id": state.topic_id,
    }
