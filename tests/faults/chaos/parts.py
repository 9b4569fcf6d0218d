"""The real parts that runs and walks share: a broker, a warm driver, an S3 server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker
from kdi_assets.tools.local.s3_server import S3Server, start_s3_server
from tests.conftest import quick_broker
from tests.faults.s3_proxy import Fault, RandomFaults, proxy_process_to
from tests.faults.warm_driver import WarmDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3_FAULTS: Mapping[Fault, float] = {"answer dropped": 0.02, "conflict": 0.03, "slow down": 0.02}
"""What a request of Spark to S3 meets, and how often."""


@dataclass(frozen=True)
class Parts:
    """Shared by all runs and walks: a warm driver, and of Kafka a broker that may be killed."""

    home: Path
    session: SparkSession
    s3: S3Server | None = None
    broker: Broker | None = None

    @property
    def kafka(self) -> Broker:
        """The broker, of which runs of Kafka order something."""
        assert self.broker
        return self.broker

    @contextmanager
    def new_lake(self, name: str) -> Iterator[str]:
        """An empty lake of one run or walk."""
        if self.s3:
            yield f"{self.s3.create_bucket(name)}/lake"
            return
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as lake:
            yield lake


@contextmanager
def started_parts(folder: Path, *, on_s3: bool, with_broker: bool, seed: int) -> Iterator[Parts]:
    """Our own warm driver, a broker if one is needed, and an S3 server if the lake is to be there."""
    with ExitStack() as started:
        s3 = start_s3_server(folder / "s3") if on_s3 else None
        lake = str(folder / "lake")
        if s3:
            started.callback(s3.stop)
            proxy = started.enter_context(proxy_process_to(s3.port, RandomFaults(seed, S3_FAULTS)))
            os.environ.update(s3.environment(endpoint=proxy.endpoint))
            lake = f"{s3.create_bucket('first')}/lake"
        with _driven(folder, lake, s3, with_broker=with_broker) as parts:
            yield parts
        if s3:
            faults = Counter(fault for _, fault in proxy.new())
            say("requests to S3: " + ", ".join(f"{count:,} × {fault}" for fault, count in faults.most_common()))


@contextmanager
def _driven(folder: Path, lake: str, s3: S3Server | None, *, with_broker: bool) -> Iterator[Parts]:
    (home := folder / "home").mkdir()
    with ExitStack() as started:
        broker = quick_broker(folder / "broker", Settings.from_environment()) if with_broker else None
        if broker:
            started.callback(broker.stop)
        driver = WarmDriver(home, {"SPARK_DRIVER_MEMORY": "1500m", "KDI_LAKE": lake})
        started.callback(driver.stop)
        session = open_session(Settings(home=home, lake=lake, driver="shared"))
        yield Parts(home, session, s3, broker)
        session.stop()


def say(*lines: str) -> None:
    """Write lines at once, for a person who watches."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
