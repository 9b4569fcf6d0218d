"""Kinesis: whether a table has the rights of its mode, and the consumer that it reads with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdi_assets.documents.model.connections.kinesis import FanOut
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis.consumers import ACTIVE_SECONDS, DOLLARS_AN_HOUR, HOURS_A_MONTH, MOST_CONSUMERS
from kdi_assets.messages.kinesis.errors import KinesisRightMissing, NoSuchConsumer
from kdi_assets.messages.kinesis.look_ahead import of_each
from kdi_assets.messages.kinesis.rights import DESCRIBES_CONSUMER, Right, TriedRights, try_rights
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning, wrong
from kdi_assets.wording import counted


def rights(tables: Sequence[KinesisStream]) -> Iterator[Finding]:
    """Try the rights of each table, and look for its consumer."""
    by_name = {table.name: table for table in tables}
    found = of_each(list(by_name), lambda name: _of_table(by_name[name]))
    for name in by_name:
        yield from found[name]


def _of_table(table: KinesisStream) -> list[Finding]:
    try:
        tried = try_rights(table)
    except KdiError as refused:
        return [wrong("rights", table.name, refused, connection=table.kinesis.name)]
    findings = list(_rights(table, tried))
    if table.fan_out and DESCRIBES_CONSUMER in tried.tried:
        findings.append(_consumer(table, table.fan_out, tried))
    return findings


def _rights(table: KinesisStream, found: TriedRights) -> Iterator[Finding]:
    facts = {"connection": table.kinesis.name, "untried": [right.action for right in found.untried]}
    later = f"; {_names(found.untried)}: not tried" if found.untried else ""
    for right, detail in found.denied.items():
        verdict = wrong if right.stops_drains else warning
        resource, facts_of_it = found.resource(right), {"action": right.action, "resource": found.resource(right)}
        missing = KinesisRightMissing(
            table=table.name, action=right.action, resource=resource, without=right.without, detail=detail
        )
        yield verdict("rights", table.name, missing, f"{right.action} is missing{later}", **facts, **facts_of_it)
    if not found.denied:
        yield fine("rights", table.name, f"{_names(found.tried)} tried{later}", **facts)


def _names(rights: Sequence[Right]) -> str:
    return ", ".join(right.action.removeprefix("kinesis:") for right in rights)


def _consumer(table: KinesisStream, fan_out: FanOut, found: TriedRights) -> Finding:
    """Whether there is a consumer, and its price at AWS's list price of us-east-1."""
    price = round(DOLLARS_AN_HOUR * HOURS_A_MONTH * found.open_shards, 2)
    status = found.consumer["ConsumerStatus"] if found.consumer else None
    facts = {"status": status, "consumers": found.consumers, "dollars_a_month": price}
    of_all = f", one of {found.consumers} (at most {MOST_CONSUMERS})" if found.consumers and status else ""
    costs = f"{price:,.2f} $ a month while it is registered"
    if status == "ACTIVE":
        return fine("consumer", table.name, f"{fan_out.consumer} is ACTIVE{of_all}; {costs}", **facts)
    if status:
        return warning("consumer", table.name, _not_active(table, fan_out, status), **facts)
    if not fan_out.is_ours:
        missing = NoSuchConsumer(stream=table.topic, consumer=fan_out.consumer, table=table.name)
        return wrong("consumer", table.name, missing, **facts)
    if (found.consumers or 0) >= MOST_CONSUMERS:
        return warning("consumer", table.name, _no_room(table, fan_out, found.consumers or 0), **facts)
    of_all = f", beside {found.consumers} of {MOST_CONSUMERS}" if found.consumers is not None else ""
    registers = f"{fan_out.consumer} is not registered: the next drain with records does it{of_all}; {costs}"
    return fine("consumer", table.name, registers, **facts)


def _not_active(table: KinesisStream, fan_out: FanOut, status: str) -> Trouble:
    return Trouble(
        kind=f"consumer {status}",
        happened=f"{table.name}: the consumer {fan_out.consumer} of {table.topic} is {status}; a drain waits up to "
        f"{ACTIVE_SECONDS} s until it is ACTIVE.",
        safe="nothing was registered or read.",
        run=f"kdi doctor {table.name}    (once more, in a minute)",
    )


def _no_room(table: KinesisStream, fan_out: FanOut, consumers: int) -> Trouble:
    return Trouble(
        kind="no room for a consumer",
        happened=f"{table.name}: {table.topic} has {counted(consumers, 'consumer')}, as many as AWS allows most "
        f"accounts; {fan_out.consumer} is not one of them, and a drain may not be able to register it.",
        safe="nothing was registered.",
        run="kdi kinesis consumers    (then deregister one that nobody needs, or set consumer: {mode: polling})",
    )
