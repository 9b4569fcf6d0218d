"""What a field of a document takes beyond its type; a refusal says what would be right."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import get_args

from pydantic_core import PydanticCustomError

from kdi_assets.components.mistakes import did_you_mean
from kdi_assets.message_rules import ContractPolicy, DeadLetterPayload, ExpectationAction, Mask, Rest, TombstonePolicy
from kdi_assets.stream import CheckName, Status, longest_interval

TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # Kafka, "Topic names"
EXPECTATION = re.compile(r"[a-z][a-z0-9_]*")
TABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
ELEMENT = re.compile(r"(?!_kdi_)[A-Za-z_]\w*")
COLUMN = re.compile(r"(?!_kdi_)[^\s.`]+(\.[^\s.`]+)*")
CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
BROKER = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^\s,:/]+):\d{1,5}")
REGISTRY = re.compile(r"https?://(\[[0-9A-Fa-f:]+\]|[^\s/:?#@\[\]]+)(:\d{1,5})?(/[^\s?#]*)?")
PROXY = re.compile(r"http://([^\s/@]+@)?(\[[0-9A-Fa-f:]+\]|[^\s/:?#@\[\]]+):\d{1,5}/?")
OWNER = re.compile(r"team:\S+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")  # what Dagster takes
DURATION = re.compile(r"(\d{1,6}) (second|minute|hour|day)s?")
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
DAYS = re.compile(r"(\d{1,4}) days?")

REFUSED_TABLE_PROPERTIES = {
    "delta.setTransactionRetentionDuration": "Delta would forget the positions of idle topic partitions",
    "delta.enableExpiredLogCleanup": "Delta would delete ledger entries that were not copied",
    "delta.enableChangeDataFeed": "the change data feed is always on",
}
OWNED_CLIENT_PROPERTIES = {
    "bootstrap.servers": "write it as bootstrap_servers",
    "isolation.level": "remove it: only committed messages are read",
    "enable.auto.commit": "remove it: positions live in the table",
    "auto.offset.reset": "remove it: `start` of the stream decides where it begins",
}


def wrong(message: str, right: str) -> PydanticCustomError:
    """A refusal by a check: what is wrong, what would be right."""
    return PydanticCustomError("wrong", "{message}", {"message": message, "right": right})


def topic(value: str) -> str:
    if not TOPIC.fullmatch(value):
        raise wrong(f"{value!r} is not a name that Kafka takes", "letters, digits, '.', '_' and '-', at most 249")
    return value


def table(value: str) -> str:
    if not TABLE.fullmatch(value):
        raise wrong(f"{value!r} is not a path below the lake's root", "e.g. bronze/web_requests, no '/' at either end")
    return value


def table_or_none(value: str) -> str:
    return table(value) if value else value


def status(value: str) -> str:
    if value not in get_args(Status):
        raise wrong(f"{value!r} is no status", "active, paused or retired")
    return value


def cron(value: str | None) -> str | None:
    from croniter import CroniterBadDateError, croniter

    if value is None:
        return None
    if not (len(value.split()) == 5 and croniter.is_valid(value)):
        raise wrong(f"{value!r} is not a cron expression", 'five fields, e.g. "0 * * * *" for every hour (UTC)')
    try:
        longest_interval(value, datetime.now(UTC))
    except CroniterBadDateError:
        raise wrong(f"{value!r} names no day that there is", 'e.g. "0 * * * *" for every hour (UTC)') from None
    return value


def sql(value: str) -> str:
    if not value.strip():
        raise wrong("is empty", "give it Spark SQL")
    return value


def column(value: str) -> str:
    if not COLUMN.fullmatch(value):
        raise wrong(
            f"{value!r} is not the path of a column",
            "names without blanks, nested by dots, none that begins with _kdi_",
        )
    return value


def app_id(value: str) -> str:
    if not value.strip():
        raise wrong("is empty", "remove the line: the topic is the default")
    return value


def owner(value: str) -> str:
    if not OWNER.fullmatch(value):
        raise wrong(f"{value!r} is neither a team nor an address", "e.g. team:web or someone@example.com")
    return value


def table_property(name: str) -> str:
    if name in REFUSED_TABLE_PROPERTIES:
        raise wrong(f"is refused: {REFUSED_TABLE_PROPERTIES[name]}", "remove the line")
    return name


def client_property(name: str) -> str:
    if name in OWNED_CLIENT_PROPERTIES:
        raise wrong("is not a property to set here", OWNED_CLIENT_PROPERTIES[name])
    return name


def client_value(value: object) -> object:
    """Text, or ``{env: NAME}``; anything else would be two refusals of pydantic's, one for each."""
    if value is None or isinstance(value, bool | int | float | list):
        raise wrong(f"takes text, not {value!r}", "put it in quotes, or write {env: NAME} for a secret")
    if isinstance(value, dict) and not (value.keys() == {"env"} and isinstance(value["env"], str) and value["env"]):
        raise wrong(f"{value!r} names no environment variable", "e.g. {env: KAFKA_PASSWORD}")
    return value


def cluster(value: str) -> str:
    if not CLUSTER.fullmatch(value):
        raise wrong(f"{value!r} is not a cluster's name", "letters, digits, '_' and '-', e.g. main")
    return value


def registry(value: str) -> str:
    if not CLUSTER.fullmatch(value):
        raise wrong(f"{value!r} is not a registry's name", "letters, digits, '_' and '-', e.g. main")
    return value


def registry_url(value: str) -> str:
    if "@" in value:
        raise wrong("holds user or password", "write them as username and password")
    if not REGISTRY.fullmatch(value):
        raise wrong(f"{value!r} is not the address of a registry", "e.g. https://registry:8081, or https://host/path")
    return value


def proxy(value: object) -> object:
    if isinstance(value, str) and not PROXY.fullmatch(value):
        raise wrong(f"{value!r} is not the address of a proxy", "e.g. http://proxy:3128")
    return client_value(value)


def bootstrap_servers(value: str) -> str:
    for broker in value.split(","):
        if not BROKER.fullmatch(broker.strip()):
            raise wrong(f"{broker.strip()!r} is not host:port", "e.g. broker-1:9092,broker-2:9092")
    return value


def day(value: object) -> object:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise wrong(f"{value!r} is not a date", "e.g. 2020-01-01") from None


def ahead(value: object) -> object:
    if not isinstance(value, str) or not DAYS.fullmatch(value):
        raise wrong(f"{value!r} is not a number of days", "e.g. 2 days, or 0 days")
    return value


def duration(value: object) -> object:
    if not isinstance(value, str) or not DURATION.fullmatch(value):
        raise wrong(f"{value!r} is not a length of time", "e.g. 5 minutes; seconds, minutes, hours or days")
    if seconds(value) < 60:
        raise wrong(f"{value!r} is too short", "at least 1 minute, the least that Dagster takes")
    return value


def seconds(length: str) -> int:
    """The seconds that a length of time has."""
    found = DURATION.fullmatch(length)
    return int(found[1]) * SECONDS[found[2]] if found else 0


def check_name(value: object) -> object:
    if value not in get_args(CheckName):
        raise wrong(f"there is no check {value!r}", did_you_mean(str(value), get_args(CheckName)))
    return value


def tombstones(value: object) -> object:
    if value not in get_args(TombstonePolicy):
        raise wrong(f"{value!r} is nothing to do with tombstones", "skip, row or dead_letter")
    return value


def explode(value: object) -> object:
    """One name, and Spark SQL."""
    if value is None:
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise wrong(f"{value!r} is not a name and an array", "one of each, e.g. {item: items}")
    for name, array in value.items():
        if not isinstance(name, str) or not ELEMENT.fullmatch(name):
            raise wrong(f"{name!r} is no name for an element", "letters, digits and '_', e.g. item")
        if not isinstance(array, str) or not array.strip():
            raise wrong(f"{array!r} is no expression", "Spark SQL of an array, e.g. {item: items}")
    return value


def mask(value: object) -> object:
    match value:
        case "drop":
            return Mask("drop")
        case None | "null":
            return Mask("null")
        case {"hash": {"env": str(secret), **more}, **others} if re.fullmatch(r"\w+", secret) and not (more or others):
            return Mask("hash", secret=secret)
        case {"keep_last": int(keep), **others} if keep > 0 and not isinstance(keep, bool) and not others:
            return Mask("keep_last", keep=keep)
    raise wrong(f"{value!r} is no mask", "drop, null, {keep_last: 4}, or {hash: {env: NAME}} with a variable's name")


def dead_letter_payload(value: object) -> object:
    if value not in get_args(DeadLetterPayload):
        raise wrong(f"{value!r} says nothing of payloads", "keep, mask or withhold")
    return value


def expectation_name(value: str) -> str:
    if not EXPECTATION.fullmatch(value):
        raise wrong(
            f"{value!r} is not a name for an expectation", "small letters, digits and '_', e.g. status_is_known"
        )
    return value


def expectation_action(value: object) -> object:
    if value not in get_args(ExpectationAction):
        raise wrong(f"{value!r} is nothing to do", "warn, dead_letter or fail")
    return value


def rest(value: object) -> object:
    if value not in get_args(Rest):
        raise wrong(f"{value!r} is nothing to do with the rest", "dead_letters or rows")
    return value


def contract_policy(value: object) -> object:
    if value not in get_args(ContractPolicy):
        raise wrong(f"{value!r} is no policy", "evolve, freeze, discard_value or discard_row")
    return value


def rescued(value: str) -> str:
    """A column at the top of the table."""
    if value and (not COLUMN.fullmatch(value) or "." in value or value.lower() == "date"):
        raise wrong(f"{value!r} is not a name for this column", "a name without dots that no other column has: rescued")
    return value


def share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise wrong(f"{value!r} is no share", "between 0 and 1, e.g. 0.01 for one message in a hundred")
    return value


def start(value: object) -> object:
    """``earliest``, ``latest``, a timestamp with its zone, or the next offset of each topic partition."""
    if isinstance(value, dict):
        return _next_offsets(value)
    if value in ("earliest", "latest"):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise wrong(
            f"{value!r} says no beginning", "earliest, latest, e.g. 2026-01-01T00:00:00Z, or {0: 1200} (offset of each)"
        ) from None
    if moment.tzinfo is None:
        raise wrong(f"{value!r} has no time zone", f"e.g. {moment.replace(tzinfo=UTC).isoformat()}")
    return value


def _next_offsets(value: dict[object, object]) -> dict[object, object]:
    for partition, offset in value.items():
        for number in (partition, offset):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise wrong(f"{{{partition}: {offset}}} is no topic partition and offset", "e.g. {0: 1200, 1: 0}")
    if not value:
        raise wrong("names no topic partition", "e.g. {0: 1200, 1: 0}, or earliest")
    return value
