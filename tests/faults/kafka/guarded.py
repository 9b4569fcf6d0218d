"""A broker that asks for credentials, and revokes rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, free_port, start_broker
from tests.faults.topics import admin


@dataclass(frozen=True)
class Guarded:
    """A broker with one listener for its admin, one that asks for credentials, and one that advertises a name without
    an address.
    """

    inside: Cluster
    door: str
    misnamed: str

    def cluster(self, password: str, *, mechanism: str) -> Cluster:
        """The cluster as a stream's document names it."""
        sasl = {"sasl.mechanisms": mechanism, "sasl.username": "kdi", "sasl.password": password}
        return Cluster("main", self.door, {"security.protocol": "SASL_PLAINTEXT", **sasl})

    def set_password(self, password: str) -> None:
        """Change the user's password for SCRAM, with immediate effect."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("kdi", how, password.encode())
        for changed in admin(self.inside).alter_user_scram_credentials([change]).values():
            changed.result(10)

    @contextmanager
    def denied(self, name: str, *operations: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> Iterator[None]:
        """During the body, deny kdi only these operations on a topic, or on another kind of resource."""
        named = (kind, name, ResourcePatternType.LITERAL)
        acls = [AclBinding(*named, "User:kdi", "*", operation, AclPermissionType.DENY) for operation in operations]
        # If a resource has any rule, everything that no rule allows is denied.
        acls.append(AclBinding(*named, "User:kdi", "*", AclOperation.ALL, AclPermissionType.ALLOW))
        for created in admin(self.inside).create_acls(acls).values():
            created.result(10)
        try:
            yield
        finally:
            every = AclBindingFilter(*named, "User:kdi", "*", AclOperation.ANY, AclPermissionType.ANY)
            admin(self.inside).delete_acls([every])[every].result(10)


@contextmanager
def guarded_broker(data: Path, settings: Settings) -> Iterator[Guarded]:
    """A broker with kdi's password by PLAIN, which stays, and by SCRAM, which can be changed."""
    ports: set[int] = set()
    while len(ports) < 4:
        ports.add(free_port())
    plain, sasl, controller, lost = ports
    door, login = "listener.name.sasl_plaintext", "org.apache.kafka.common.security"
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},"
        f"LOST://127.0.0.1:{lost},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},LOST://127.0.0.1:1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOST:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{door}.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_kdi="right";',
        f"{door}.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    jvm_options = (*JVM_OPTIONS, *QUICK_START)
    broker = start_broker(data, port=plain, home=settings.home, jvm_options=jvm_options, properties=properties)
    try:
        yield Guarded(Cluster("main", broker.bootstrap_servers), f"127.0.0.1:{sasl}", f"127.0.0.1:{lost}")
    finally:
        broker.stop()
