"""Scenarios: files that say what to produce, and what to do to the topic, the writer and the table, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from kdi_assets.tools.conformance.errors import UnknownName
from kdi_assets.tools.conformance.yaml_file import FileModel, read_file

FOLDER = Path(__file__).with_name("scenarios")
Moment = Literal["started", "file", "commit"]
"""When the suite goes on beside a writer: at once, at its first new Parquet file, at its first new commit."""


class ScenarioBytes(FileModel):
    """A value that is not a text, as hexadecimal digits."""

    hex: str

    @field_validator("hex")
    @classmethod
    def _digits(cls, digits: str) -> str:
        bytes.fromhex(digits)  # a ValueError becomes a mistake with its line
        return digits


class Produce(FileModel):
    """Produce messages.

    Attributes:
        messages: So many good ones.
        values: Besides, these values, one message each: text as it stands, bytes, or null (a tombstone).
        keys: The good messages have so many different keys in turn; by default one each.
        added: Fields that the good messages have besides the usual ones.
        days_ago: The dates of the good messages, in turn; by default yesterday's.
    """

    step: Literal["produce"] = "produce"
    messages: Annotated[int, Field(ge=0)] = 0
    values: tuple[str | ScenarioBytes | None, ...] = ()
    keys: Annotated[int, Field(ge=1)] | None = None
    added: Mapping[str, str | int | float | bool] = Field(default_factory=dict)
    days_ago: tuple[Annotated[int, Field(ge=0)], ...] = (1,)


class Transaction(FileModel):
    """Produce good messages in a transaction, and end it."""

    step: Literal["transaction"] = "transaction"
    messages: Annotated[int, Field(ge=1)]
    end: Literal["commit", "abort"]


class Run(FileModel):
    """Let the writer catch up: start it until it ends without an error, decide what it refuses if it can be decided."""

    step: Literal["run"] = "run"


class Kill(FileModel):
    """Produce, start the writer, kill it (SIGKILL) at a random moment; so many times.

    Attributes:
        messages: Before each start.
        service: Kill the adapter's service with the writer.
    """

    step: Literal["kill"] = "kill"
    times: Annotated[int, Field(ge=1)]
    messages: Annotated[int, Field(ge=0)] = 0
    service: bool = False


class Begin(FileModel):
    """Start so many writers at once, and go on without waiting for their end."""

    step: Literal["begin"] = "begin"
    writers: Annotated[int, Field(ge=1, le=4)] = 1
    until: Moment = "started"


class Leave(FileModel):
    """Ask one of the writers that run to end, by the adapter's `stop`."""

    step: Literal["leave"] = "leave"


class Finish(FileModel):
    """Wait until the writers that ``begin`` started have ended; those that run on catch up first."""

    step: Literal["finish"] = "finish"


class AddPartitions(FileModel):
    """Increase the number of topic partitions to this one."""

    step: Literal["add_partitions"] = "add_partitions"
    total: Annotated[int, Field(ge=2)]


class Compact(FileModel):
    """Wait until Kafka has removed messages with the same key, except the newest."""

    step: Literal["compact"] = "compact"


class Expire(FileModel):
    """Delete the oldest messages, as retention does; so many stay in each topic partition."""

    step: Literal["expire"] = "expire"
    keep: Annotated[int, Field(ge=0)]


class Recreate(FileModel):
    """Delete the topic and create another one of its name."""

    step: Literal["recreate"] = "recreate"


class Mark(FileModel):
    """Remember the table's version for ``restore``."""

    step: Literal["mark"] = "mark"


class Restore(FileModel):
    """RESTORE the table to the remembered version."""

    step: Literal["restore"] = "restore"


ScenarioStep: TypeAlias = (
    Produce
    | Transaction
    | Run
    | Kill
    | Begin
    | Leave
    | Finish
    | AddPartitions
    | Compact
    | Expire
    | Recreate
    | Mark
    | Restore
)
STEPS: Mapping[str, type[ScenarioStep]] = {
    model.model_fields["step"].default: model
    for model in (
        Produce,
        Transaction,
        Run,
        Kill,
        Begin,
        Leave,
        Finish,
        AddPartitions,
        Compact,
        Expire,
        Recreate,
        Mark,
        Restore,
    )
}


class Scenario(FileModel):
    """One scenario.

    Attributes:
        title: For the table of results.
        purpose: What must hold, and why it could fail.
        partitions: Of the topic at its beginning.
        compacted: Whether the topic is compacted, from the step ``compact`` on.
        may_refuse: Whether a writer may stop with an error because it cannot know what is right.
        steps: In their order. The last step is always ``run``.
    """

    name: str = ""
    title: str
    purpose: str
    partitions: Annotated[int, Field(ge=1)] = 2
    compacted: bool = False
    may_refuse: bool = False
    steps: Annotated[tuple[Annotated[ScenarioStep, Field(discriminator="step")], ...], Field(min_length=1)]

    @field_validator("steps", mode="before")
    @classmethod
    def _named(cls, steps: Any) -> Any:
        return [_named_step(number, step) for number, step in enumerate(steps)] if isinstance(steps, list) else steps

    @model_validator(mode="after")
    def _in_order(self) -> Scenario:
        names = [step.step for step in self.steps]
        if names[-1] != "run":
            raise ValueError("the last step must be run: the writer is judged when it has caught up")
        for later, before in (("restore", "mark"), ("leave", "begin"), ("finish", "begin"), ("mark", "run")):
            if later in names and before not in names[: names.index(later)]:
                raise ValueError(f"{later} needs {before} before it")
        if names.count("begin") > names.count("finish") and "finish" not in names[_last(names, "begin") :]:
            raise ValueError("begin needs finish after it")
        if "compact" in names and not self.compacted:
            raise ValueError("compact needs `compacted: true`")
        return self


def _last(names: Sequence[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name)


def _named_step(number: int, step: Any) -> Any:
    """``run`` and ``produce: {…}`` as one form."""
    if isinstance(step, str):
        step = {step: {}}
    if not isinstance(step, dict) or len(step) != 1:
        raise ValueError(f"step {number + 1} must be a name, or a name with its fields: produce: {{messages: 100}}")
    ((name, fields),) = step.items()
    if name not in STEPS:
        close = get_close_matches(str(name), STEPS, n=1)
        guess = f"did you mean {close[0]}?" if close else f"one of: {', '.join(STEPS)}"
        raise ValueError(f"step {number + 1}: there is no step {name!r}; {guess}")
    if fields is not None and not isinstance(fields, dict):
        raise ValueError(f"step {number + 1}: the fields of {name} must be a mapping")
    return {**(fields or {}), "step": name}


def scenario_names() -> tuple[str, ...]:
    """The scenarios that come with the suite, in the order of the table."""
    return tuple(path.stem.partition("-")[2] for path in sorted(FOLDER.glob("*.yaml")))


def load_scenario(name: str) -> Scenario:
    """A scenario by its name, or by the path of its file.

    Raises:
        UnknownName: There is none.
        FileMistakes: Its file is wrong.
    """
    paths = [Path(name)] if name.endswith(".yaml") else sorted(FOLDER.glob(f"[0-9][0-9]-{name}.yaml"))
    if not paths or not name:
        raise UnknownName(kind="scenario", name=name, known=scenario_names())
    scenario = read_file(paths[0], Scenario)
    return scenario.model_copy(update={"name": paths[0].stem.partition("-")[2] or paths[0].stem})
