"""Where the sample comes from, and into which folder the document goes; nothing is overwritten."""

from __future__ import annotations

import re
from pathlib import Path

from kdi_assets.config.folder import DOCUMENT_NAMES, FOLDER_TYPE, display_path
from kdi_assets.config.loader import read_streams
from kdi_assets.config.yaml_documents import parse
from kdi_assets.errors import Terminal
from kdi_assets.sources.kafka.errors import TopicMissing
from kdi_assets.sources.kafka.sample import TopicSample, sample, topics_of
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import Cluster
from kdi_assets.wording import did_you_mean

_NAME = re.compile(r"[^A-Za-z0-9_]+")


class NothingProposed(Terminal):
    """There is nothing to sample, or no place for the document."""

    topic: str
    why: str
    run: str

    what_happened = "{why}"
    what_is_safe = "nothing was written; the topic was only read."
    what_to_run = "{run}"


def sampled(cluster: Cluster, topic: str, *, count: int) -> TopicSample:
    """A sample of the topic with at least one message that has a value.

    Raises:
        NothingProposed: The cluster does not know the topic, or it is empty, or has nothing but tombstones.
        BrokerUnreachable, LeaderMissing: Trying again can help.
        AccessRefused: The brokers do not let us in, or read.
    """
    try:
        found = sample(cluster, read_topic(cluster, topic), count=count)
    except TopicMissing as missing:
        why = f"Kafka cluster {cluster.name} has no topic {topic!r}; {did_you_mean(topic, topics_of(cluster))}"
        raise NothingProposed(topic=topic, why=why, run="kdi new with a topic that we may see") from missing
    if all(message.value is None for message in found.messages):
        detail = f"has tombstones alone, {len(found.messages):,} in the sample" if found.messages else "has no message"
        why = f"topic {topic!r} of Kafka cluster {cluster.name} {detail} that may be read: nothing to tell a schema by."
        run = "the same command once its producer has published; or write the document by hand (docs/streams.md)"
        raise NothingProposed(topic=topic, why=why, run=run)
    return found


def place(folder: Path, table: str, *, topic: str) -> Path:
    """The file for a stream's document.

    Raises:
        NothingProposed: A document lies there, or one above hides what lies below it.
    """
    if above := _loaded(folder):
        types = {
            d.type for d in parse(above.read_text(encoding="utf-8", errors="replace"), display_path(above)).documents
        }
        if FOLDER_TYPE not in types:
            raise _occupied(topic, above, "ends the search for documents, so none below its folder would be loaded")
    own = folder / _NAME.sub("_", table.rpartition("/")[2])
    if there := _loaded(own):
        raise _occupied(topic, there, "is there already, and stays as it is")
    return own / DOCUMENT_NAMES[0]


def write(folder: Path, file: Path, text: str, *, topic: str) -> None:
    """Write a new file.

    Raises:
        NothingProposed: The folder's documents would have a mistake with it, or somebody was quicker.
    """
    loaded = read_streams(folder, proposed=parse(text, display_path(file)))
    if mistake := next((m for m in loaded.mistakes if m.file == display_path(file)), None):
        why = f"a document for topic {topic} would not pass beside those that are there: {mistake.text()}"
        run = f"kdi new {topic} --table another/path, or --stdout to see the document"
        raise NothingProposed(topic=topic, why=why, run=run)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise _occupied(topic, file, "is there already, and stays as it is") from None


def _loaded(folder: Path) -> Path | None:
    return next((folder / name for name in DOCUMENT_NAMES if (folder / name).is_file()), None)


def _occupied(topic: str, file: Path, why: str) -> NothingProposed:
    run = f"kdi new {topic} --stdout prints the document; put it where you want it"
    return NothingProposed(topic=topic, why=f"{display_path(file)} {why}.", run=run)
