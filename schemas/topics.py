"""The Kafka topics: names, partitions, and how long each is kept (architecture: "Kafka topics")."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

DAY_MS = 24 * 60 * 60 * 1000
LARGEST_RECORD = 20_000_000
"""The largest record, in bytes, that a gateway tries to send; the limit of a topic may be lower."""
ESSENTIAL = ("message.timestamp.type", "cleanup.policy")
"""Topic settings without which messages are misrouted or states are lost; the others concern disk space and time."""
NO_GROUP = "unused"
"""The consumer group of clients that choose their partitions themselves and store nothing in it. librdkafka requires a
group and its coordinator: with ACLs each user needs READ on it (docs/clusters.md)."""


def lease_group(prefix: str, name: str) -> str:
    """The consumer group in which the lease `name` is held."""
    return f"{prefix}lease.{name}"


class Topic(NamedTuple):
    """`config`: broker settings of the topic, with Kafka's names."""

    name: str
    partitions: int
    config: dict[str, str]


class Topics:
    """The names of all topics under one prefix; two stacks with different prefixes can share a broker."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.ingress = prefix + "ingress"
        self.egress = prefix + "egress"
        self.routes = prefix + "routes"
        self.sessions = prefix + "sessions"
        self.spool = prefix + "spool"
        self.retained = prefix + "retained"
        self.progress = prefix + "progress"
        self.completion = prefix + "completion"
        self.presence = prefix + "presence"
        self.presence_state = prefix + "presence-state"
        self.message_presence = prefix + "message-presence"
        self.message_presence_state = prefix + "message-presence-state"
        self.mesh_certificates = prefix + "mesh-certificates"
        self.members = prefix + "members"
        self.leases = prefix + "leases"
        self.feeds = prefix + "feeds"
        self.quarantine = prefix + "quarantine"

    def feed(self, name: str) -> str:
        """The topic of the copies of a redundant feed."""
        return f"{self.prefix}feed.{name}"

    def declared(
        self, ingress_partitions: int, shards: int, kept_ms: int, feeds: Sequence[str] = (), feed_partitions: int = 2
    ) -> Iterator[Topic]:
        """Every topic with its settings; `feeds` are the names of redundant feeds. Times are the broker's, because
        routing compares append times."""
        clock = {"message.timestamp.type": "LogAppendTime"}
        kept = clock | {"cleanup.policy": "delete", "retention.ms": str(kept_ms)}
        # A gateway reads these from the beginning when it starts. The broker never compacts a topic's last segment, and
        # compacts the rest only once this share of it is out of date. Both are small, so that a start is quick after
        # any history.
        compacted = clock | {
            "cleanup.policy": "compact",
            "segment.ms": str(DAY_MS // 24),
            "segment.bytes": str(16 << 20),
            "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": str(DAY_MS),
        }
        yield Topic(self.ingress, ingress_partitions, kept)
        # An instruction has the headers of its message, and two more.
        yield Topic(self.egress, shards, kept | {"max.message.bytes": str(LARGEST_RECORD)})
        yield Topic(self.routes, 1, compacted)
        # The owner of a shard has that long to write again what a gateway that has lost it has overwritten.
        mended = {"min.compaction.lag.ms": str(10 * 60 * 1000)}
        yield Topic(self.sessions, shards, compacted | mended)
        # A gateway's file that is younger than half of this reads on where it stopped. A message takes more bytes here
        # than on `ingress`.
        changelog = {"delete.retention.ms": str(DAY_MS), "max.message.bytes": str(LARGEST_RECORD)}
        yield Topic(self.spool, shards, compacted | mended | changelog)
        yield Topic(self.retained, 1, compacted | mended)
        yield Topic(self.progress, ingress_partitions, kept)
        yield Topic(self.completion, ingress_partitions, kept)
        yield Topic(self.presence, ingress_partitions, kept)
        yield Topic(self.presence_state, ingress_partitions, compacted)
        yield Topic(self.message_presence, ingress_partitions, kept)
        yield Topic(self.message_presence_state, ingress_partitions, compacted)
        yield Topic(self.mesh_certificates, 1, compacted)
        # Each gateway and each feed adapter overwrites its record several times a second, and their readers read all of
        # them when they start. The segments are as small as brokers allow.
        heartbeats = {"segment.ms": str(5 * 60 * 1000), "segment.bytes": str(1 << 20)}
        yield Topic(self.members, 1, compacted | heartbeats)
        # Who has read a claim reads what superseded it before compaction can remove either. A tombstone outlives every
        # reader that began before it.
        leases = {"min.compaction.lag.ms": str(10 * 60 * 1000), "delete.retention.ms": str(DAY_MS)}
        yield Topic(self.leases, 1, compacted | leases)
        yield Topic(self.feeds, 1, compacted | heartbeats)
        for name in feeds:
            yield Topic(self.feed(name), feed_partitions, kept)
        yield Topic(self.quarantine, 1, clock | {"cleanup.policy": "delete", "retention.ms": str(4 * kept_ms)})
