"""The options of kafka-delta-ingest, and its command line as they give it. No I/O.

Source: kafka-delta-ingest at c6d42de, ``src/main.rs``; older releases took several values after ``-t`` and ``-K``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kdi_assets.tools.predecessor.errors import CommandNotRead
from kdi_assets.wording import did_you_mean

PROGRAM, SUBCOMMAND = "kafka-delta-ingest", "ingest"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of kafka-delta-ingest.

    Attributes:
        short: Its letter; empty if it has none.
        variable: Its environment variable; empty if it has none.
        is_flag: Whether it takes no value.
        repeats: Whether it may be given several times.
        default: What it is if it is not given.
    """

    name: str
    short: str = ""
    variable: str = ""
    is_flag: bool = False
    repeats: bool = False
    default: str = ""


POSITIONAL = (Option("topic", variable="KAFKA_TOPIC"), Option("table_location", variable="TABLE_LOCATION"))
NAMED = (
    Option("kafka", "k", "KAFKA_BROKERS", default="localhost:9092"),
    Option("consumer_group", "g", "KAFKA_CONSUMER_GROUP"),
    Option("app_id", "a", "APP_ID", default="kafka_delta_ingest"),
    Option("seek_offsets", variable="KAFKA_SEEK_OFFSETS"),
    Option("auto_offset_reset", "o", "KAFKA_AUTO_OFFSET_RESET", default="earliest"),
    Option("allowed_latency", "l", "ALLOWED_LATENCY"),
    Option("max_messages_per_batch", "m", "MAX_MESSAGES_PER_BATCH"),
    Option("min_bytes_per_file", "b", "MIN_BYTES_PER_FILE"),
    Option("transform", "t", "TRANSFORMS", repeats=True),
    Option("dlq_table_location", variable="DLQ_TABLE_LOCATION"),
    Option("dlq_transform", variable="DLQ_TRANSFORMS", repeats=True),
    Option("checkpoints", "c", "WRITE_CHECKPOINTS", is_flag=True),
    Option("kafka_setting", "K", repeats=True),
    Option("statsd_endpoint", "s", "STATSD_ENDPOINT"),
    Option("json", variable="JSON_REGISTRY"),
    Option("avro", variable="AVRO_REGISTRY"),
    Option("soe-avro"),
    Option("ends_at_latest_offsets", "e", "ENDS_AT_LATEST_OFFSETS", is_flag=True),
    Option("decompress_gzip", variable="DECOMPRESS_GZIP", is_flag=True),
)
OPTIONS: Mapping[str, Option] = {option.name: option for option in (*POSITIONAL, *NAMED)}
FORMATS = ("json", "avro", "soe-avro")
_LONG = {option.name: option for option in NAMED} | {"Kafka": OPTIONS["kafka_setting"]}  # `--Kafka` is in its README
_SHORT = {option.short: option for option in NAMED if option.short}
_DELIMITER = {"transform": ":", "dlq_transform": ":", "kafka_setting": "="}
REFERENCE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
"""A variable in shell text."""
_FALSE = ("", "n", "no", "f", "false", "off", "0")  # clap, FalseyValueParser


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command line, or the value of a variable.

    Attributes:
        where: File and line, or which argument.
        is_expanded: Whether a shell has expanded its variables.
    """

    text: str
    where: str
    is_expanded: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A value that an option has.

    Attributes:
        option: The option as it is written, such as ``--app_id`` or ``APP_ID``.
        where: File and line, or which argument.
    """

    option: str
    value: str
    where: str


@dataclass
class IngestCommand:
    """One call of kafka-delta-ingest.

    Attributes:
        options: Values by the option's long name.
        variables: The environment variables that are not options.
    """

    options: dict[str, list[Given]] = field(default_factory=dict)
    variables: dict[str, Word] = field(default_factory=dict)

    def given(self, name: str) -> Given | None:
        """The option's value, if it is given; the last of several."""
        return self.options[name][-1] if name in self.options else None

    def value(self, name: str) -> str:
        """The option's value, or its default."""
        given = self.given(name)
        return given.value if given else OPTIONS[name].default


def read_command(words: Sequence[Word], variables: Mapping[str, Word]) -> IngestCommand:
    """The options that a command line and environment variables give; the command line comes first.

    Args:
        words: May begin with the program, or with words before its subcommand.

    Raises:
        CommandNotRead: A word is not an option, a value is missing, or there is no topic or table.
    """
    command = IngestCommand()
    _Words(_after_subcommand(words), command, variables).read()
    for option in OPTIONS.values():
        given = variables.get(option.variable) if option.variable else None
        if given is None or option.name in command.options or _is_other_format(option, command):
            continue
        if not option.is_flag or given.text.lower() not in _FALSE:
            text = _expanded(given, option, variables)
            command.options[option.name] = [Given(option.variable, text, given.where)]
    of_options = {option.variable for option in OPTIONS.values()}
    command.variables = {name: word for name, word in variables.items() if name not in of_options}
    for option in POSITIONAL:
        if option.name not in command.options:
            raise CommandNotRead(
                where="command line",
                why=f"{option.name} is missing",
                right=f"the same command with all arguments after --, or with {option.variable} in the environment",
            )
    return command


def _is_other_format(option: Option, command: IngestCommand) -> bool:
    return option.name in FORMATS and any(name in command.options for name in FORMATS)


def _after_subcommand(words: Sequence[Word]) -> Sequence[Word]:
    texts = [word.text for word in words]
    if SUBCOMMAND in texts:
        return words[texts.index(SUBCOMMAND) + 1 :]
    first = 1 if texts and texts[0].rpartition("/")[2] == PROGRAM else 0
    return words[first:]


class _Words:
    """Reads the words of a command line from left to right, as clap does."""

    def __init__(self, words: Sequence[Word], command: IngestCommand, variables: Mapping[str, Word]) -> None:
        self._left = list(words)
        self._command = command
        self._variables = variables

    def read(self) -> None:
        last: Option | None = None
        while self._left:
            word = self._left.pop(0)
            if word.text.startswith("--"):
                last = self._long(word)
            elif re.match(r"-[A-Za-z]", word.text):
                last = self._short(word)
            elif (position := self._free_position()) is not None:
                self._add(position, position.name, word)
            elif last and (delimiter := _DELIMITER.get(last.name)) and delimiter in word.text:
                self._add(last, f"--{last.name}", word)  # older releases took several values after one option
            else:
                raise CommandNotRead(
                    where=word.where, why=f"{word.text!r} is one argument too many", right="the command without it"
                )

    def _long(self, word: Word) -> Option:
        name, equals, value = word.text[2:].partition("=")
        if name not in _LONG:
            raise _unknown(word, f"--{name}", [f"--{known}" for known in _LONG])
        self._value(_LONG[name], f"--{name}", word, value if equals else None)
        return _LONG[name]

    def _short(self, word: Word) -> Option:
        letter, rest = word.text[1], word.text[2:]
        if letter not in _SHORT:
            raise _unknown(word, f"-{letter}", [f"-{known}" for known in _SHORT])
        option = _SHORT[letter]
        if option.is_flag and rest:
            self._left.insert(0, Word(f"-{rest}", word.where, word.is_expanded))  # `-ce` is `-c -e`
            rest = ""
        self._value(option, f"-{letter}", word, rest.removeprefix("=") or None)
        return option

    def _value(self, option: Option, written: str, word: Word, value: str | None) -> None:
        if option.is_flag:
            self._add(option, written, Word("true", word.where))
        elif value is not None:
            self._add(option, written, Word(value, word.where, word.is_expanded))
        elif self._left:
            self._add(option, written, self._left.pop(0))
        else:
            raise CommandNotRead(where=word.where, why=f"{written} has no value", right="the command with its value")

    def _add(self, option: Option, written: str, word: Word) -> None:
        of = self._command.options
        if option.name in FORMATS and (others := [name for name in FORMATS if name in of]):
            raise CommandNotRead(
                where=word.where, why=f"{written} and --{others[0]} exclude each other", right="the command with one"
            )
        before = of.get(option.name, []) if option.repeats else []
        of[option.name] = [*before, Given(written, _expanded(word, option, self._variables), word.where)]

    def _free_position(self) -> Option | None:
        return next((option for option in POSITIONAL if option.name not in self._command.options), None)


def _expanded(word: Word, option: Option, variables: Mapping[str, Word]) -> str:
    """The word with the variables of the same source; a client property keeps them, because it may be a secret."""
    if word.is_expanded or option.name in ("kafka_setting", "transform", "dlq_transform"):
        return word.text

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in variables:
            right = f"the same command with {name} in --env-file, or with the value in its place"
            raise CommandNotRead(
                where=word.where, why=f"nothing gives the variable {name} of {option.name}", right=right
            )
        return variables[name].text

    return REFERENCE.sub(value, word.text)


def _unknown(word: Word, written: str, known: Sequence[str]) -> CommandNotRead:
    return CommandNotRead(
        where=word.where, why=f"kafka-delta-ingest has no option {written}; {did_you_mean(written, known)}",
        right="the command with an option that it has",
    )  # fmt: skip
