"""A real Kafka broker of one node (KRaft: broker and controller in one process), run from the resolved jars.

Guarantees: it listens on one host only; its data, cluster id and configuration are in one directory; restarted over the
same directory, even after `kill -9`, it serves the same records. There is one replica: a lost disk loses them.
"""

import base64
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from edge.durable import replace_file
from jobs.errors import StackError

NODE_ID = 1
ENVELOPE_BYTES = 65_536
"""Space for key and headers, in addition to the largest payload."""
EVENT_BYTES = 1_048_576
"""The largest session record or event that a gateway's limits allow."""

_LOGGING = """\
# Written at each start. The broker logs to standard output.
status = warn
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.start.name = kafka.server.KafkaRaftServer
logger.start.level = info
# Each shutdown of the only node interrupts its own fetches.
logger.clients.name = org.apache.kafka.clients.NetworkClient
logger.clients.level = error
"""


class BrokerSpec(NamedTuple):
    """`directory` belongs to the broker alone; `heap` as Java spells it (`512m`); `payload_bytes`: the largest payload;
    `java_options`: further options of its JVM."""

    directory: Path
    host: str
    port: int
    controller_port: int
    heap: str
    payload_bytes: int
    java_options: str = ""

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def logging_file(self) -> Path:
        return self.directory / "log4j2.properties"

    @property
    def storage(self) -> Path:
        return self.directory / "storage"


def server_properties(spec: BrokerSpec) -> dict[str, str]:
    """The broker's settings. The quorum is static, so that the controller may move to another port."""
    controller = f"{spec.host}:{spec.controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "listeners": f"BROKER://{spec.bootstrap},CONTROLLER://{controller}",
        "advertised.listeners": f"BROKER://{spec.bootstrap}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(spec.storage),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(max(spec.payload_bytes, EVENT_BYTES) + ENVELOPE_BYTES),
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def prepare(spec: BrokerSpec, java: str, classpath: str) -> list[str]:
    """Write the configuration, format the storage on the first start, and return the broker's command line.

    Raises StackError if the storage cannot be formatted.
    """
    spec.directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}={value}\n" for key, value in server_properties(spec).items()]
    spec.properties_file.write_text("# Written at each start: your changes would be lost.\n" + "".join(lines))
    spec.logging_file.write_text(_LOGGING)
    base = [java, f"-Dlog4j2.configurationFile={spec.logging_file}", "-cp", classpath]
    if not (spec.storage / "meta.properties").exists():
        _format_storage(spec, base)
    heap = [f"-Xmx{spec.heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"]
    heap += shlex.split(spec.java_options)
    return [base[0], *heap, *base[1:], "kafka.Kafka", str(spec.properties_file)]


def cluster_id(spec: BrokerSpec) -> str:
    """The id of this directory's cluster: generated once, then always the same. Raises OSError."""
    path = spec.directory / "cluster.id"
    known = path.read_text().strip() if path.exists() else ""
    if not known:  # it is new, or an earlier version has found a full disk
        known = new_cluster_id()
        replace_file(path, f"{known}\n".encode())
    return known


def new_cluster_id() -> str:
    """A UUID as Kafka writes it: URL-safe base64, not beginning with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


def _format_storage(spec: BrokerSpec, base: list[str]) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id(spec), "-c", str(spec.properties_file)]
    done = subprocess.run([*base, *tool], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it gave no reason"]
        raise StackError(f"cannot format the broker's storage in {spec.storage}: {lines[-1]}")


def answers(spec: BrokerSpec, timeout_s: float = 1.0) -> bool:
    """Whether this directory's broker, and not some other, answers at its address."""
    client = AdminClient({"bootstrap.servers": spec.bootstrap, "log_level": 0})
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.cluster_id == cluster_id(spec)
