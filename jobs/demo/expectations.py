"""What every client should have received, by what was published and who subscribed; compared with what it received.

Matching uses paho-mqtt's matcher, so that it does not repeat a mistake of the gateway. A message at QoS 1 or 2 is due
to every subscriber, connected or not. One delivered at QoS 0 is due to those that were connected when it was published
and stayed so until it arrived; others may get it or not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from paho.mqtt.matcher import MQTTMatcher

from jobs.demo.plan import Member, Publish
from schemas.identity import INBOX_MARK


class Verdict(NamedTuple):
    """Counts made by the clients: all but the first two, and the latencies, must be 0 in a good run.

    `published`: acknowledged messages; `delivered`: (message, recipient) pairs; `duplicates`: further copies of those;
    `lost`: pairs that were due and did not arrive; `stray`: pairs that nobody had subscribed to; `misordered`: messages
    that arrived after a later one of the same sender; `unacknowledged`: publishes. Latencies in ms, None if nobody was
    online.
    """

    published: int
    delivered: int
    duplicates: int
    lost: int
    stray: int
    misordered: int
    unacknowledged: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass
class _Sent:
    """`at`: seconds, the clock of the fleet; `allowed`: the clients that may receive it."""

    message: Publish
    at: float
    allowed: frozenset[str]
    acknowledged: bool = False


@dataclass
class _Recipient:
    """`due`: QoS of each message that has yet to arrive; `last`: the highest `seq` received from each sender."""

    online_since: float | None = None
    due: dict[str, int] = field(default_factory=dict)
    got: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


class Account:
    """Counts while the clients run. All members are subscribed before the first publish."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._recipients: dict[str, _Recipient] = {}
        self._sent: dict[str, _Sent] = {}
        self._matcher = MQTTMatcher()  # type: ignore[no-untyped-call]
        by_filter: dict[str, dict[str, int]] = {}
        for member in members:
            self._recipients[member.client] = _Recipient()
            for wanted in member.subscriptions:
                by_filter.setdefault(wanted.filter, {})[member.client] = wanted.qos
        for topic_filter, subscribers in by_filter.items():
            self._matcher[topic_filter] = subscribers
        self._latencies_ms: list[float] = []
        self._duplicates = self._stray = self._misordered = self._acknowledged = self._delivered = 0
        self.waited: list[str] = []
        """Ids of messages that a recipient received although it was offline when they were published."""

    def recipients(self, topic: str, qos: int) -> dict[str, int]:
        """Who should receive a message, at which QoS: the lower of the message's and the best subscription's."""
        if topic.startswith(INBOX_MARK):
            owner = topic.removeprefix(INBOX_MARK)
            return {owner: qos} if owner in self._recipients else {}
        found: dict[str, int] = {}
        for subscribers in self._matcher.iter_match(topic):  # type: ignore[no-untyped-call]
            for client, wanted in subscribers.items():
                found[client] = max(found.get(client, 0), min(qos, wanted))
        return found

    def online(self, client: str, now: float) -> None:
        """The client's connection has been accepted."""
        self._recipients[client].online_since = now

    def offline(self, client: str) -> None:
        """The client disconnects or lost its connection: QoS 0 messages in flight to it may be missed."""
        recipient = self._recipients[client]
        recipient.online_since = None
        recipient.due = {identifier: qos for identifier, qos in recipient.due.items() if qos}

    def published(self, message: Publish, now: float) -> None:
        """A client publishes now."""
        to = self.recipients(message.topic, message.qos)
        self._sent[message.id] = _Sent(message, now, frozenset(to))
        for client, qos in to.items():
            recipient = self._recipients[client]
            if qos or recipient.online_since is not None:
                recipient.due[message.id] = qos

    def acknowledged(self, message_id: str) -> None:
        """The sender has its PUBACK or PUBCOMP, or has written the message at QoS 0."""
        sent = self._sent[message_id]
        self._acknowledged += not sent.acknowledged
        sent.acknowledged = True

    def received(self, client: str, message_id: str, now: float) -> None:
        """A client received a message."""
        recipient, sent = self._recipients[client], self._sent.get(message_id)
        if sent is None or client not in sent.allowed:
            self._stray += 1
            return
        recipient.due.pop(message_id, None)
        copies = recipient.got[message_id] = recipient.got.get(message_id, 0) + 1
        if copies > 1:
            self._duplicates += 1
            return
        self._delivered += 1
        message = sent.message
        self._misordered += message.seq < recipient.last.get(message.sender, 0)
        recipient.last[message.sender] = max(message.seq, recipient.last.get(message.sender, 0))
        if recipient.online_since is not None and recipient.online_since <= sent.at:
            self._latencies_ms.append((now - sent.at) * 1000)
        else:
            self.waited.append(message_id)

    @property
    def in_flight(self) -> tuple[int, int]:
        """How many deliveries are still due: to clients that are online, and to those that are offline."""
        online = sum(len(r.due) for r in self._recipients.values() if r.online_since is not None)
        return online, sum(len(r.due) for r in self._recipients.values()) - online

    @property
    def is_settled(self) -> bool:
        return self._acknowledged == len(self._sent) and sum(self.in_flight) == 0

    def still_due(self) -> list[tuple[str, str, int]]:
        """(message id, client, QoS) of each delivery that is due."""
        return [(i, client, qos) for client, r in self._recipients.items() for i, qos in r.due.items()]

    def by_qos(self) -> dict[str, int]:
        """Acknowledged messages by the QoS of their PUBLISH."""
        counts = {"0": 0, "1": 0, "2": 0}
        for sent in self._sent.values():
            counts[str(sent.message.qos)] += sent.acknowledged
        return counts

    def message(self, message_id: str) -> Publish:
        return self._sent[message_id].message

    def verdict(self) -> Verdict:
        """The counts at present."""
        ordered = sorted(self._latencies_ms)
        return Verdict(
            self._acknowledged,
            self._delivered,
            self._duplicates,
            sum(self.in_flight),
            self._stray,
            self._misordered,
            len(self._sent) - self._acknowledged,
            quantile(ordered, 0.5),
            quantile(ordered, 0.99),
        )


def quantile(ordered: list[float], share: float) -> float | None:
    """The value below which `share` of the ordered values lie, rounded to 0.01; None if there are none."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None
