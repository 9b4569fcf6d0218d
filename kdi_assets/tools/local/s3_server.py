"""S3 on the loopback for demo and tests: the server `ministack`, which honours conditional puts."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from kdi_assets.tools.local.errors import S3ServerDied

ANSWER_SECONDS = 30.0
REGION = "eu-central-1"
ACCESS_KEY = "kdi-loopback"


class S3Server:
    """A running server; it ends at the latest with this process."""

    def __init__(self, data: Path, *, port: int, services: Sequence[str], keep: bool):
        self.data = data
        self.port = port
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "BIND_HOST": "127.0.0.1",  # its default is every interface
            "GATEWAY_PORT": str(port),
            "SERVICES": ",".join(services),
            "S3_PERSIST": "1" if keep else "0",
            "S3_DATA_DIR": str(data / "objects"),
            "MINISTACK_REGION": REGION,  # it does not keep the regions of kept buckets
            "LOG_LEVEL": "WARNING",
            "TMPDIR": str(data),
        }
        self._child = Child([sys.executable, "-m", "ministack"], log=self.log, environment=settings)
        try:
            if failed := self._child.await_answer(self._answers, seconds=ANSWER_SECONDS):
                raise self._refusal(failed)
        except BaseException:
            self._child.kill()
            raise

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._child.pid

    @property
    def log(self) -> Path:
        """The server's output."""
        return self.data / "s3-server.log"

    def environment(self, *, endpoint: str | None = None) -> Mapping[str, str]:
        """Variables with which boto3, delta-rs and Spark use the server; it takes any credentials.

        Args:
            endpoint: Of a proxy in front of the server.
        """
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": f"{ACCESS_KEY}-secret",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",  # delta-rs asks for it
            "AWS_EC2_METADATA_DISABLED": "true",  # no client looks for credentials in a network
        }

    def client(self) -> Any:
        """A boto3 client of the server."""
        import boto3
        from botocore.config import Config

        of = self.environment()
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=of["AWS_REGION"],
            aws_access_key_id=of["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=of["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def create_bucket(self, name: str) -> str:
        """Create an empty bucket; returns its URI."""
        self.client().create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return f"s3://{name}"

    def stop(self) -> None:
        """Shut it down; kill it if that takes too long."""
        self._child.stop()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            with suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/_ministack/health")
                return connection.getresponse().status == 200
        finally:
            connection.close()
        return False

    def _refusal(self, ending: str) -> S3ServerDied:
        lines = self.log.read_text(errors="replace").splitlines()
        return S3ServerDied(ending=ending, data=self.data, log=self.log, tail="\n".join(lines[-6:]))


def start_s3_server(data: Path, *, services: Sequence[str] = ("s3", "sts"), keep: bool = False) -> S3Server:
    """Start the server and wait until it answers.

    Args:
        data: Folder of its log, and of the objects if they are kept.
        services: Names of the AWS services to serve, for example ``secretsmanager``.
        keep: Keep the objects between runs; otherwise they are only in memory.

    Raises:
        S3ServerDied: It does not start.
    """
    return S3Server(data.absolute(), port=free_port(), services=services, keep=keep)
