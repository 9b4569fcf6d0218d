"""`kdi new`: write a document for a topic, proposed from a sample of its messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kdi_assets.cli.documents.new_all import NewForAll, new_for_all
from kdi_assets.cli.options import AsJson, Defs, refuse_no_or_both
from kdi_assets.cli.output import print_progress, print_result, refusal_in_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.model.connections.connections import Registry
    from kdi_assets.documents.model.stream import Cluster
    from kdi_assets.tools.scaffold.propose import Proposal

NamedConnection = TypeVar("NamedConnection")

ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="Name of the KafkaCluster document; default: main, or the only one.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", help="Path of the table; default: bronze/TOPIC, or bronze/{topic}.")
]
RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="Name of the SchemaRegistry document; default: main, or the only one.")
]


@dataclass(frozen=True, slots=True)
class NewForTopic:
    """The document of a topic; ``file``: where it was written, ``None`` if it was not."""

    proposal: Proposal
    table: str
    cluster: str
    file: Path | None
    text: str

    def said(self, option: str) -> str:
        """What the command prints; ``option`` is the `--defs` that it was given, for the next command."""
        from kdi_assets.documents.loading.folder import display_path
        from kdi_assets.tools.scaffold.document import outcome_in_words, refined_path

        if not self.file:
            return self.text.removesuffix("\n")
        found, silver = self.proposal.recognised, refined_path(self.proposal, self.table)
        refined = f"Its second document makes {silver} of them, the rows as they are now.\n" if silver else ""
        sampled = f"the {len(self.proposal.sample.messages):,} sampled messages"
        return (
            f"{display_path(self.file)}: {found.what}, written as {found.format}; date: {self.proposal.date.sql}\n"
            f"With this document, {sampled} become {outcome_in_words(self.proposal)}.\n{refined}"
            f"  Run:  kdi check{option}\n"
            f"        kdi peek {self.table}{option}"
        )

    def fields(self) -> dict[str, object]:
        """The same for programs."""
        from kdi_assets.documents.loading.folder import display_path
        from kdi_assets.tools.scaffold.document import refined_path

        proposal, found = self.proposal, self.proposal.outcome
        return {
            "topic": proposal.sample.topic.topic,
            "cluster": self.cluster,
            "stream": self.table,
            "refined": refined_path(proposal, self.table) or None,
            "file": display_path(self.file) if self.file else None,
            "recognised": proposal.recognised.what,
            "format": proposal.recognised.format,
            "date": proposal.date.sql,
            "sampled": len(proposal.sample.messages),
            "rows": found.rows,
            "tombstones": found.tombstones,
            "dead_letters": [
                {"reason": reason, "field": field or None, "messages": count}
                for (reason, field), count in found.letters.most_common()
            ],
            "document": self.text,
        }


def new(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="The Kafka topic.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All topics of the cluster that no document drains.")] = False,
    cluster: ClusterOption = None,
    registry: RegistryOption = None,
    table: TableOption = None,
    messages: Annotated[int, typer.Option(min=1, max=20_000, help="Number of messages to sample.")] = 2000,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the document, write no file.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Sample a topic and write a document for it: format, schema and date, each with what the sample shows.

    Reads the oldest and newest messages of each topic partition, without a
    consumer group. Writes the document to a new folder in the folder of the
    documents; never overwrites one. The document holds no values of messages.

    With --all it is a file for all topics of the cluster that no document drains
    yet, as documents of many topics: what most of them have is shared, and the
    others have exceptions. Topics without messages are left out.

    Exit codes: 0 written, or printed; 1 someone must decide; 2 usage; 75 a retry helps.
    """
    from kdi_assets.documents.loading.loader import defs_folder, read_streams

    refuse_no_or_both([topic] if topic else [], all_=all_, what="a topic")
    table = table or f"bronze/{_of_topic(topic)}"
    with refusal_in_json(stream=table, as_json=as_json):
        folder, now = defs or defs_folder(), datetime.now(UTC)
        loaded = read_streams(folder)  # mistakes in other documents do not prevent a new one
        source, schemas = _connections(loaded, cluster, registry)
        if not stdout:
            _refuse_own_folder(folder, topic or "--all")
        propose = partial(_propose, cluster=source, registry=schemas, count=messages, now=now)
        made: NewForTopic | NewForAll
        if topic is None:
            made = new_for_all(folder, loaded, source, propose=propose, table=table, now=now, write=not stdout)
        else:
            made = _new_for_topic(topic, folder, source, propose=propose, table=table, now=now, write=not stdout)
    print_result(made.said(_option(defs)), made.fields(), as_json=as_json)


def _connections(loaded: LoadedFolder, cluster: str | None, registry: str | None) -> tuple[Cluster, Registry | None]:
    """The cluster to sample, and the registry to ask.

    Raises:
        typer.BadParameter: It is not clear which, or no document describes it.
    """
    if loaded.connections and (cluster in loaded.connections or not (cluster or loaded.clusters)):
        why = "kdi new samples topics of Kafka only; write the document of a stream of Kinesis: docs/kinesis.md"
        raise typer.BadParameter(why, param_hint="--cluster")
    source = _named_or_default(cluster, loaded.clusters, "cluster")
    schemas = _named_or_default(registry, loaded.registries, "registry")
    if source is None:
        known = ", ".join(sorted(loaded.clusters)) or "no document describes one; KDI_KAFKA=host:9092 does"
        raise typer.BadParameter(f"which cluster? {known}", param_hint="--cluster")
    return source, schemas


def _new_for_topic(
    topic: str,
    folder: Path,
    cluster: Cluster,
    *,
    propose: Callable[[str], Proposal],
    table: str,
    now: datetime,
    write: bool,
) -> NewForTopic:
    """Sample a topic, and write a document for it."""
    from kdi_assets.tools.scaffold.document import document, document_file, write_document

    file = document_file(folder, table, topic=topic) if write else None
    proposal = propose(topic)
    text = document(proposal, table=table, cluster=cluster.name, now=now)
    if file:
        write_document(folder, file, text, topic=topic)
    return NewForTopic(proposal, table, cluster.name, file, text)


def _of_topic(topic: str | None) -> str:
    """The last part of the path of a topic's table."""
    return "{topic}" if topic is None else re.sub(r"^[^A-Za-z0-9]+", "", topic) or "topic"


def _propose(topic: str, cluster: Cluster, registry: Registry | None, *, count: int, now: datetime) -> Proposal:
    from kdi_assets.tools.scaffold.propose import propose, sample_topic
    from kdi_assets.tools.scaffold.registry_lookup import subject_of

    print_progress(f"sampling {topic} of cluster {cluster.name}")
    home = Settings.from_environment().home
    ask = partial(subject_of, topic, registry, home) if registry else None
    return propose(sample_topic(cluster, topic, count=count), now=now, ask=ask)


def _named_or_default(name: str | None, known: Mapping[str, NamedConnection], option: str) -> NamedConnection | None:
    """The connection with this name; without a name ``main``, or the only one."""
    from kdi_assets.wording import did_you_mean

    if name is None:
        return known.get("main") or (next(iter(known.values())) if len(known) == 1 else None)
    if name not in known:
        message = f"no document describes a {option} named {name!r}; {did_you_mean(name, known)}"
        raise typer.BadParameter(message, param_hint=f"--{option}")
    return known[name]


def _refuse_own_folder(folder: Path, topic: str) -> None:
    """Refuse to write among the documents of the package.

    Raises:
        NothingProposed: The folder is the package's own, with the documents of the demo, as in a checkout without
            ``KDI_DEFS``.
    """
    from kdi_assets.tools.scaffold.errors import NothingProposed

    if folder.resolve().is_relative_to(Path(__file__).resolve().parents[2]):
        why = f"{folder} belongs to the package: its documents are those of the demo, and an upgrade may replace them."
        run = f"export KDI_DEFS=$PWD/defs; mkdir -p defs; kdi new {topic}   (KDI_KAFKA=host:9092 names the brokers)"
        raise NothingProposed(topic=topic, why=why, run=run)


def _option(defs: Path | None) -> str:
    """The folder that the command was given, as an option of the next one."""
    return f" --defs {shlex.quote(str(defs))}" if defs else ""
