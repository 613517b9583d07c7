"""A real broker with a listener that asks for TLS and a password (SASL_SSL), beside the plain one it is set up by.

Who comes by the first has the rights of `conf/kubernetes/kafka-users.yaml` and no others; the plain one may do all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from harness.keys import Authority
from harness.processes import HOST, Broker
from jobs.stack.broker import BrokerSpec
from jobs.stack.ports import Ports
from jobs.stack.topics import admin_client
from schemas.topics import Topics
from tests.conftest import LocalBroker
from tests.unit.conf.manifests import manifests

GATEWAY = "waystation-gateway"
SPARK = "waystation-spark"
PREFIX = "ws."
"""What topics and groups of the manifest begin with; a test's own begin with its prefix."""

PASSWORD = 'a "quoted" pass\\word; with = all that has a meaning somewhere'
MECHANISM = "SCRAM-SHA-512"


class SecureBroker(LocalBroker):
    """`bootstrap` is the plain listener, `secure` the other; `authority` signed its certificate."""

    def __init__(self, bootstrap: str, secure: str, authority: Authority) -> None:
        super().__init__(bootstrap)
        self.secure = secure
        self.authority = authority

    def topics(self, prefix: str, ingress_partitions: int = 2, shards: int = 4) -> Topics:
        """Also gives both users their rights on them."""
        admin = admin_client(self.bootstrap, {})  # held until all is done, or it would be broken off
        for done in admin.create_acls(rights(prefix)).values():
            done.result(30)
        return super().topics(prefix, ingress_partitions, shards)

    def client(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        """Settings of a client, as librdkafka spells them."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority.file),
        }


def rights(prefix: str) -> list[AclBinding]:
    """Those of the manifest, as an administrator writes them, with `prefix` for the manifest's own."""
    return [
        AclBinding(
            ResourceType[acl["resource"]["type"].upper()],
            acl["resource"]["name"].replace(PREFIX, prefix),
            ResourcePatternType["PREFIXED" if acl["resource"]["patternType"] == "prefix" else "LITERAL"],
            f"User:{user['metadata']['name']}",
            "*",
            AclOperation[OPERATIONS[operation]],
            AclPermissionType.ALLOW,
        )
        for user in manifests("kafka-users.yaml")
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    ]


OPERATIONS = {"Read": "READ", "Write": "WRITE", "Describe": "DESCRIBE", "DescribeConfigs": "DESCRIBE_CONFIGS"}


@contextmanager
def secure_broker(directory: Path, java_home: Path) -> Iterator[SecureBroker]:
    secure = Ports(directory).choose("secure", HOST, 0, "")
    authority = Authority(directory)
    signed = authority.sign("broker")
    keystore = directory / "broker.pem"
    keystore.write_bytes(signed.key.read_bytes() + signed.certificate.read_bytes())
    listener = f"SECURE://{HOST}:{secure}"

    def properties(spec: BrokerSpec) -> str:
        return f"""
listeners=BROKER://{spec.bootstrap},CONTROLLER://{HOST}:{spec.controller_port},{listener}
advertised.listeners=BROKER://{spec.bootstrap},{listener}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms={MECHANISM}
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={keystore}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
"""

    broker = Broker(directory, java_home, properties=properties).start()
    try:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        changes = [UserScramCredentialUpsertion(user, credential, PASSWORD.encode()) for user in (GATEWAY, SPARK)]
        admin = admin_client(broker.bootstrap, {})
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(30)
        yield SecureBroker(broker.bootstrap, f"{HOST}:{secure}", authority)
    finally:
        broker.stop()
