"""The struct of what a source says of a message besides its value: expressions know it, and rows keep a part of it.

Both of its kinds are here, and nothing else names their fields: a stream's connection says which one is its own
(``Stream.source_struct``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HEADERS = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class SourceStruct:
    """The struct of one kind of source.

    Attributes:
        name: Expressions know the struct by it, and it is the column of a table's coordinates by default.
        known: Its fields: Spark SQL over the columns of messages (``messages.source.messages_ddl``).
        row: Those that each row of a table keeps.
        common: Common name of what every source says (topic, partition, offset, timestamp, key) to the field.
        letter: Column of a dead letter to Spark SQL over the struct.
        more: Columns that messages and dead letters have here besides those of every source: name to type.
    """

    name: str
    known: Mapping[str, str]
    row: Sequence[str]
    common: Mapping[str, str]
    letter: Mapping[str, str]
    more: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Spark SQL of a field, by its own name."""
        return f"{self.name}.{name}"

    @property
    def topic(self) -> str:
        """The field that names the topic."""
        return self.common["topic"]

    @property
    def more_ddl(self) -> str:
        """``more``, to add to a DDL."""
        return "".join(f", {column} {kind}" for column, kind in self.more.items())

    def instead_of(self, name: str) -> str:
        """What expressions write here in the place of a name that only those of another source know.

        Args:
            name: A struct's name, and with a dot, that of its field.

        Returns:
            Empty if no other source has this struct.
        """
        struct, _, asked = name.partition(".")
        other = next((s for s in SOURCE_STRUCTS if s.name == struct.lower() != self.name), None)
        if other is None:
            return ""
        found = next((self.common[c] for c, field_ in other.common.items() if field_ == asked.lower()), None)
        return self.path(found) if found else f"one of {', '.join(map(self.path, self.known))}"


KAFKA = SourceStruct(
    name="kafka",
    known={
        "topic": "topic",
        "partition": "partition",
        "offset": "offset",
        "timestamp": "timestamp",
        "timestamp_type": "timestampType",
        "key": "key",
        "tombstone": "value IS NULL",
        "headers": "headers",
    },
    row=("topic", "partition", "offset", "timestamp"),
    common={name: name for name in ("topic", "partition", "offset", "timestamp", "key")},
    letter={
        "topic": "kafka.topic",
        "partition": "kafka.partition",
        "offset": "kafka.offset",
        "timestamp": "kafka.timestamp",
        "timestamp_type": "kafka.timestamp_type",
        "key": "kafka.key",
        "headers": "kafka.headers",
    },
)
KINESIS = SourceStruct(
    name="kinesis",
    known={
        "stream": "topic",
        "shard_id": "concat('shardId-', lpad(CAST(partition AS STRING), 12, '0'))",
        "sequence_number": "sequence_number",
        "subsequence_number": "subsequence_number",
        "partition": "partition",
        "offset": "offset",
        "timestamp": "timestamp",
        "partition_key": "CAST(key AS STRING)",
    },
    row=("stream", "shard_id", "sequence_number", "subsequence_number", "partition", "offset", "timestamp"),
    common={
        "topic": "stream",
        "partition": "partition",
        "offset": "offset",
        "timestamp": "timestamp",
        "key": "partition_key",
    },
    letter={
        "topic": "kinesis.stream",
        "partition": "kinesis.partition",
        "offset": "kinesis.offset",
        "timestamp": "kinesis.timestamp",
        "timestamp_type": "1",  # as Kafka numbers it: the server's time
        "key": "CAST(kinesis.partition_key AS BINARY)",
        "headers": f"CAST(NULL AS {HEADERS})",
        "sequence_number": "kinesis.sequence_number",
        "subsequence_number": "kinesis.subsequence_number",
    },
    more={"sequence_number": "string", "subsequence_number": "int"},
)
SOURCE_STRUCTS = (KAFKA, KINESIS)
