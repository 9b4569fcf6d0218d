"""Settings from environment variables; everything else is in the YAML documents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from socket import gethostname
from typing import Literal, cast, get_args
from urllib.parse import unquote, urlsplit

from kdi_assets.wording import BROKER

DriverMode = Literal["auto", "own", "shared"]
SAFE_SCHEMES = frozenset({"", "file", "hdfs", "s3", "s3a", "abfs", "abfss", "gs"})
"""Where only one of two drivers can write a version: a folder and S3 by our log stores, the others by Delta's (Delta's
documentation, "Storage configuration")."""
ON_S3 = ("s3", "s3a")
SWITCH = {"on": True, "off": False, "": False}


@dataclass(frozen=True, slots=True)
class Prices:
    """What a unit costs, in any currency; nothing, if it has no price.

    Attributes:
        cpu_second: A second of one core.
        gb_read, gb_written: 10^9 bytes of messages, uncompressed, and of data files.
        put: A request that puts an object into the lake.
    """

    cpu_second: float = 0.0
    gb_read: float = 0.0
    gb_written: float = 0.0
    put: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Read ``cpu_second=0.5,put=0.25``.

        Raises:
            ValueError: A name is unknown or there twice, or its price is not a number from 0 on.
        """
        found: dict[str, float] = {}
        for part in text.split(","):
            name, _, price = (side.strip() for side in part.partition("="))
            try:
                number = float(price)
            except ValueError:
                number = -1.0
            known = name in {f.name for f in fields(cls)} and name not in found
            if not (known and isfinite(number) and number >= 0):
                names = ", ".join(f.name for f in fields(cls))
                raise ValueError(
                    f"KDI_PRICES has {part.strip()!r}; it takes name=price, with commas between them, of {names}: "
                    "each at most once, and no price below 0"
                )
            found[name] = number
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one installation.

    Attributes:
        home: Folder of everything that KDI creates: jars, broker data, lake, Dagster's home, driver secret.
            ``KDI_HOME``.
        lake: Root of the tables, a path or URI. ``KDI_LAKE``.
        kafka: Bootstrap servers of the cluster ``main``, in place of those in its document. ``KDI_KAFKA``.
        spark_master: Spark's master; empty for Spark's own configuration. ``KDI_SPARK_MASTER``.
        alert_webhook: URL that alerts are sent to; empty for none. It is a secret and is not shown.
            ``KDI_ALERT_WEBHOOK``.
        catalog: Where tables are registered: ``glue`` or ``spark``, with ``:DATABASE`` if all of them share one; empty
            for nowhere. ``KDI_CATALOG``.
        lineage: Whether OpenLineage's own variables name a receiver of its events.
        prices: What a unit of usage costs; ``None``: unknown. ``KDI_PRICES``.
        s3_buckets: Buckets besides that of ``lake``, each with the profile of AWS for it, or empty for AWS's usual
            settings. ``KDI_S3_BUCKETS``.
        verbose: Print what Kafka's clients and Spark log. ``KDI_VERBOSE``, or `kdi -v`.
        automation: Whether sensors and schedules are on without a click: in the one deployment that works on a lake by
            itself. ``KDI_AUTOMATION``.
        driver: ``own`` starts a JVM in the process, ``shared`` uses the warm driver, ``auto`` uses it if one runs for
            this lake. ``KDI_DRIVER``.
    """

    home: Path
    lake: str
    kafka: str = ""
    spark_master: str = ""
    driver: DriverMode = "auto"
    automation: bool = False
    alert_webhook: str = field(default="", repr=False)
    catalog: str = ""
    lineage: bool = False
    prices: Prices | None = None
    verbose: bool = False
    s3_buckets: Mapping[str, str] = field(default_factory=dict)

    @property
    def uses_s3(self) -> bool:
        """Whether tables may lie on S3."""
        return urlsplit(self.lake).scheme in ON_S3 or bool(self.s3_buckets)

    @property
    def has_listeners(self) -> bool:
        """Whether another system hears of drains and replays."""
        return self.lineage or bool(self.catalog)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the ``KDI_…`` variables.

        Raises:
            ValueError: ``KDI_DRIVER`` is no ``DriverMode``, ``KDI_AUTOMATION`` neither on nor off, ``KDI_KAFKA`` names
                no brokers, ``KDI_CATALOG`` no catalog, ``KDI_PRICES`` no prices, or ``KDI_S3_BUCKETS`` no buckets.
        """
        home = Path(environment.get("KDI_HOME", ".kdi")).absolute()
        driver = environment.get("KDI_DRIVER", "auto")
        if driver not in get_args(DriverMode):
            raise ValueError(f"KDI_DRIVER is {driver!r}; it takes auto, own or shared")
        automation = environment.get("KDI_AUTOMATION", "")
        if automation not in SWITCH:
            raise ValueError(f"KDI_AUTOMATION is {automation!r}; it takes on or off")
        catalog = environment.get("KDI_CATALOG", "")
        if not re.fullmatch(r"((glue|spark)(:\w+(\.\w+)*)?)?", catalog):
            raise ValueError(f"KDI_CATALOG is {catalog!r}; it takes glue, spark, glue:DATABASE or spark:DATABASE")
        kafka = environment.get("KDI_KAFKA", "")
        if kafka and not all(re.fullmatch(BROKER, broker.strip()) for broker in kafka.split(",")):
            raise ValueError(f"KDI_KAFKA is {kafka!r}; it takes host:port, or several with commas between them")
        return cls(
            home=home,
            lake=lake_root(environment.get("KDI_LAKE") or str(home / "lake")),
            kafka=kafka,
            spark_master=environment.get("KDI_SPARK_MASTER", ""),
            driver=cast(DriverMode, driver),
            automation=SWITCH[automation],
            alert_webhook=environment.get("KDI_ALERT_WEBHOOK", ""),
            catalog=catalog,
            prices=Prices.parse(prices) if (prices := environment.get("KDI_PRICES", "")) else None,
            lineage=_sends_lineage(environment),
            verbose=bool(environment.get("KDI_VERBOSE")),
            s3_buckets=s3_buckets(environment),
        )


def lake_root(lake: str) -> str:
    """A path or URI that Spark, in whatever process, and all others take for the same folder.

    Hadoop takes a URI as it is written, where others decode it; and a warm driver has another working folder.

    Raises:
        ValueError: The URI has a character that others read as something else, escaped or not.
    """
    if not urlsplit(lake).scheme:
        return str(Path(lake).absolute())
    if found := re.search("[?#%]", decoded := unquote(lake)):
        raise ValueError(f"{lake!r} is no root of a lake: a URI cannot have {found[0]!r} in it, nor its escape")
    return decoded


def s3_buckets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``KDI_S3_BUCKETS``: bucket to profile, as in ``finance=audit,archive``; the profile is empty if none is named.

    Raises:
        ValueError: It is not a list of buckets.
    """
    text = environment.get("KDI_S3_BUCKETS", "")
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        named = re.fullmatch(r"\s*([a-z0-9][a-z0-9.-]+)(?:=([\w.@+-]+))?\s*", part)
        if named is None or named[1] in found:
            raise ValueError(f"KDI_S3_BUCKETS has {part.strip()!r}; it takes bucket or bucket=profile, each once")
        found[named[1]] = named[2] or ""
    return found


def deployment_name() -> str:
    """Where this process works, as ledger entries name it: the host, and Dagster's home or else that of KDI."""
    folder = os.environ.get("DAGSTER_HOME") or os.environ.get("KDI_HOME", ".kdi")
    with suppress(OSError):  # the working folder was removed
        folder = str(Path(folder).absolute())
    return f"{gethostname()}:{folder}"


def _sends_lineage(environment: Mapping[str, str]) -> bool:
    """Whether OpenLineage's client would find a transport in its variables; without one it prints its events."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE")
    return any(environment.get(name) for name in names)
