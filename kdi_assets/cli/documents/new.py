"""`kdi new`: write a document for a topic, proposed from a sample of its messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kdi_assets.cli.documents.new_all import new_for_all
from kdi_assets.cli.options import AsJson, Defs, refuse_no_or_both
from kdi_assets.cli.output import print_progress, print_result, refusal_in_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.documents.model.connections.connections import Registry
    from kdi_assets.documents.model.stream import Cluster
    from kdi_assets.tools.scaffold.propose import Proposal

NamedConnection = TypeVar("NamedConnection")

ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="Name of the KafkaCluster document; default: main, or the only one.")
]
RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="Name of the SchemaRegistry document; default: main, or the only one.")
]


def new(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="The Kafka topic.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All topics of the cluster that no document drains.")] = False,
    cluster: ClusterOption = None,
    registry: RegistryOption = None,
    table: Annotated[
        str | None, typer.Option(help="Path of the table; default: bronze/TOPIC, or bronze/{topic}.")
    ] = None,
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
    from kdi_assets.tools.scaffold.document import document, document_file, write_document

    refuse_no_or_both([topic] if topic else [], all_=all_, what="a topic")
    table = table or f"bronze/{_of_topic(topic)}"
    with refusal_in_json(stream=table, as_json=as_json):
        folder, now = defs or defs_folder(), datetime.now(UTC)
        loaded = read_streams(folder)  # mistakes in other documents do not prevent a new one
        if loaded.connections and (cluster in loaded.connections or not (cluster or loaded.clusters)):
            why = "kdi new samples topics of Kafka only; write the document of a stream of Kinesis: docs/kinesis.md"
            raise typer.BadParameter(why, param_hint="--cluster")
        source = _named_or_default(cluster, loaded.clusters, "cluster")
        schemas = _named_or_default(registry, loaded.registries, "registry")
        if source is None:
            known = ", ".join(sorted(loaded.clusters)) or "no document describes one; KDI_KAFKA=host:9092 does"
            raise typer.BadParameter(f"which cluster? {known}", param_hint="--cluster")
        if not stdout:
            _refuse_own_folder(folder, topic or "--all")
        if topic is None:
            sampled = partial(_propose, cluster=source, registry=schemas, count=messages, now=now)
            found = new_for_all(folder, loaded, source, propose=sampled, table=table, now=now, write=not stdout)
            print_result(found.said(_option(defs)), found.fields(), as_json=as_json)
            return
        file = None if stdout else document_file(folder, table, topic=topic)
        proposal = _propose(topic, source, schemas, count=messages, now=now)
        text = document(proposal, table=table, cluster=source.name, now=now)
        if file:
            write_document(folder, file, text, topic=topic)
    said = _written(proposal, table, file, defs) if file else text.removesuffix("\n")
    print_result(said, _fields(proposal, table, source.name, file, text), as_json=as_json)


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


def _written(proposal: Proposal, table: str, file: Path, defs: Path | None) -> str:
    from kdi_assets.documents.loading.folder import display_path
    from kdi_assets.tools.scaffold.document import outcome_in_words, refined_path

    found, sample, silver = proposal.recognised, len(proposal.sample.messages), refined_path(proposal, table)
    option = _option(defs)
    refined = f"Its second document makes {silver} of them, the rows as they are now.\n" if silver else ""
    return (
        f"{display_path(file)}: {found.what}, written as {found.format}; date: {proposal.date.sql}\n"
        f"With this document, the {sample:,} sampled messages become {outcome_in_words(proposal)}.\n{refined}"
        f"  Run:  kdi check{option}\n"
        f"        kdi peek {table}{option}"
    )


def _fields(proposal: Proposal, table: str, cluster: str, file: Path | None, text: str) -> dict[str, object]:
    from kdi_assets.documents.loading.folder import display_path
    from kdi_assets.tools.scaffold.document import refined_path

    found = proposal.outcome
    return {
        "topic": proposal.sample.topic.topic,
        "cluster": cluster,
        "stream": table,
        "refined": refined_path(proposal, table) or None,
        "file": display_path(file) if file else None,
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
        "document": text,
    }
