"""Errors of rules and of a table's columns."""

from __future__ import annotations

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import AGAIN, Terminal
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.wording import sql_command


class ShapeMistake(Terminal):
    """A stream's schema or one of its expressions does not work.

    Attributes:
        field: Its path: ``columns.host``.
        change: What makes it work, if that is known.
    """

    stream: str
    field: str
    message: str
    change: str = "correct the stream's document"

    what_happened = "{stream}: `{field}` does not work: {message}"
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi check   (first {change})"


class ContractBroken(Terminal):
    """Messages have what a frozen contract does not allow; ``offset`` is the offset of one of them."""

    stream: str
    fields: FieldCounts
    messages: int
    topic_partition: TopicPartition
    offset: int
    knows_offsets: bool = True
    found, rule, instead = "", "", ""

    def message_parts(self) -> tuple[str, str, str]:
        at = f"{self.topic_partition} offset {self.offset}"
        return (
            f"{self.stream}: {self.fields.messages:,} of {self.messages:,} messages that {self.found}: "
            f"{self.fields.listed()}; one of them: {at}. `contract.{self.rule}` is freeze.",
            "nothing was committed and no dead letter was written; positions stay as they are.",
            f"{_shown(self)}kdi check   (with {self.instead} or discard_row); then kdi drain {self.stream}",
        )


class UnknownFieldsFound(ContractBroken):
    """Messages have fields that the record does not have."""

    found, rule = "would become rows have fields that the record does not have", "new_columns"
    instead = "declare them in the record, or set `contract.new_columns` to evolve, discard_value"


class OtherTypesFound(ContractBroken):
    """Messages have values that do not suit their types."""

    found, rule = "would become rows have values that do not suit their types", "types"
    instead = "correct `schema`, or set `contract.types` to discard_value"


class ExpectationNotMet(Terminal):
    """Messages do not meet an expectation that stops the drain."""

    stream: str
    expectation: str
    sql: str
    count: int
    messages: int
    topic_partition: TopicPartition
    offset: int
    knows_offsets: bool = True

    def message_parts(self) -> tuple[str, str, str]:
        at = f"{self.topic_partition} offset {self.offset}"
        return (
            f"{self.stream}: {self.count:,} of {self.messages:,} messages that would become rows do not meet the "
            f"expectation {self.expectation} ({self.sql}); one of them: {at}.",
            "nothing was committed and no dead letter was written; positions stay as they are.",
            f"{_shown(self)}kdi check   (with another `expectations.{self.expectation}`, `then: dead_letter` or "
            f"`then: warn`); then kdi drain {self.stream}",
        )


def _shown(error: ContractBroken | ExpectationNotMet) -> str:
    """The command that shows the message of the error, or messages like it."""
    place = f" --topic-partition {error.topic_partition} --offset {error.offset}" if error.knows_offsets else ""
    return f"kdi peek {error.stream}{place}   (shows {'it' if place else 'what is next'}); then "


class MaskSecretMissing(Terminal):
    """The environment variable with the key of a hash is not set, or empty."""

    stream: str
    column: str
    variable: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: the hash of {self.column} needs the secret in the environment variable {self.variable}, "
            "which is not set.",
            "nothing was read and nothing was written.",
            f"{AGAIN}   (with {self.variable} set to the same secret as before: another one gives other hashes)",
        )


class SchemaDisagrees(Terminal):
    """The table's columns are not the ones of the stream's document.

    Attributes:
        missing: The columns that the table lacks, as DDL.
        lacks: The property that the table lacks; one of the differences. Empty: none.
    """

    stream: str
    uri: str
    differences: tuple[str, ...]
    missing: tuple[str, ...] = ()
    lacks: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        alter = f"ALTER TABLE delta.`{self.uri}`"
        without = "or take `types: evolve` out of the document"
        widen = f"{sql_command(f'{alter} SET TBLPROPERTIES ({self.lacks} = true)')}   ({without})"
        evolve = "first set `contract: {new_columns: evolve}` in the document: the drain adds them"
        more = sql_command(f"{alter} ADD COLUMNS ({', '.join(self.missing)})")
        add = f"kdi drain {self.stream}   ({evolve}); or {more}"
        change = "kdi check   (with the columns of the table in the document; other columns take a new table: "
        change += 'docs/procedures.md, "Changing a table")'
        others = len(self.differences) - len(self.missing) - bool(self.lacks)
        steps = (widen if self.lacks else "", add if self.missing else "", change if others else "")
        return (
            f"{self.stream}: {self.uri} and the stream's document disagree: {'; '.join(self.differences)}.",
            "nothing was read and nothing was written.",
            "; then ".join(filter(None, steps)),
        )


class TooManyMessages(Terminal):
    """A replay has more messages that name files than the driver can hold; plans of drains are smaller."""

    stream: str
    most: int

    what_happened = "{stream}: more than {most:,} messages are to be read at once, and each of them names files."
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = "the same command again   (for fewer dates)"
