"""Kinesis as documents describe it: the connection to a region, and the stream of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from kdi_assets.documents.model.field_types import AWS_REGION, ConnectionName, Declared, matching, wrong
from kdi_assets.documents.model.source_struct import KINESIS, SourceStruct

OUR_CONSUMERS = "kdi_"
"""How the names of consumers begin that drains register."""
AT_HORIZON, AT_END = "trim_horizon", "shard_end"
CHECKPOINT_WORDS = {word: word for word in (AT_HORIZON, AT_END)} | {"earliest": AT_HORIZON}
"""Checkpoints of shards that are not sequence numbers: its oldest record is the next, or all of it was read."""
CONSUMER_NAME = r"[a-zA-Z0-9_.-]{1,128}"  # Kinesis, "RegisterStreamConsumer"


@dataclass(frozen=True, slots=True)
class FanOut:
    """The consumer of a table that reads with enhanced fan-out.

    Attributes:
        consumer: Its name or ARN.
        is_ours: Drains register it if it is missing.
        deregisters: A drain deregisters it when nothing is left to read.
    """

    consumer: str
    is_ours: bool
    deregisters: bool = False


@dataclass(frozen=True, slots=True)
class KinesisRegion(Declared):
    """Kinesis in one region. Credentials are those that AWS's clients find on the driver, or those of a role."""

    system: ClassVar[str] = "kinesis"
    struct: ClassVar[SourceStruct] = KINESIS
    knows_offsets: ClassVar[bool] = False

    name: Annotated[ConnectionName, Field(examples=["main"])]
    """The name that streams use for the connection."""
    region: Annotated[str, AWS_REGION, Field(examples=["eu-central-1"])]
    """The region of the streams."""
    endpoint: Annotated[
        str,
        matching(r"https?://[^\s/?#@]+/?", "is not the address of an endpoint", "e.g. https://vpce-1.kinesis.aws"),
        Field(examples=["http://127.0.0.1:14566"]),
    ] = ""
    """Another address than that of the region: of a VPC, or of a server for tests."""
    role_arn: Annotated[
        str,
        matching(
            r"arn:aws[a-z-]*:iam::\d{12}:role/\S+",
            "is not the ARN of a role",
            "e.g. arn:aws:iam::123456789012:role/kdi",
        ),
        Field(examples=["arn:aws:iam::123456789012:role/kdi"]),
    ] = ""
    """A role to take, for instance of the account that owns the streams; by default none."""
    role_external_id: Annotated[str, Field(examples=["kdi-4711"])] = ""
    """What the role asks for besides, if its owner is another company."""
    role_session_name: Annotated[
        str,
        matching(r"[\w+=,.@-]{2,64}", "is not a session's name", "letters, digits and =,.@-, at least two"),
        Field(examples=["kdi"]),
    ] = "kdi"
    """The name that the logs of that account show."""
    sts_endpoint: Annotated[
        str,
        matching(r"https?://[^\s/?#@]+/?", "is not the address of an endpoint", "e.g. https://vpce-1.sts.aws"),
        Field(examples=["https://vpce-1.sts.eu-central-1.vpce.amazonaws.com"]),
    ] = ""
    """Another address of the service that gives the role than that of the region."""

    @model_validator(mode="after")
    def _fields_of_a_role_have_one(self) -> KinesisRegion:
        for name in ("role_external_id", "sts_endpoint"):
            if getattr(self, name) and not self.role_arn:
                raise wrong("is given, and no role", "give role_arn as well", field=name)
        return self

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self.endpoint or self.region
