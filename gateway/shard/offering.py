"""Offers a message to the sessions whose subscriptions match it: one PUBLISH to each (MQTT 5.0, 3.3.4).

A message with many matches is offered in steps (:mod:`gateway.shard.work`). Sessions and subscriptions may end between
two steps.
"""

from collections.abc import Iterable, Sequence

from gateway.shard.delivery import Deliverer
from gateway.shard.messages import Delivery, Message, PendingMessage
from gateway.shard.node import Node
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription
from gateway.shard.work import RECIPIENT, SLICE, Steps, Work

_IDENTIFIERS_A_UNIT = 8


class Share:
    """One PUBLISH to a client: the highest QoS, whether RETAIN is set, all subscription identifiers.

    `subscriptions` are those of `session` that match.
    """

    __slots__ = ("identifiers", "qos", "retain", "session", "subscriptions")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.subscriptions: list[SessionSubscription] = []
        self.qos = 0
        self.retain = False
        self.identifiers: list[int] = []


class Offering:
    """Offers messages of a shard to its sessions."""

    def __init__(self, shard: Shard, deliverer: Deliverer, node: Node) -> None:
        self._sessions = shard.sessions
        self._bundles = shard.bundles
        self._deliverer = deliverer
        self._node = node

    def takes_bundle(self, message: Message) -> bool:
        """Whether a message that came in a bundle is offered: not if an earlier copy of it was (M14)."""
        is_new = self._bundles.is_new(message, self._node.clock())
        if not is_new:
            self._node.counts["bundles_duplicate"] += 1
        return is_new

    def offer(self, pending: PendingMessage, subscriptions: Sequence[SessionSubscription]) -> Steps[None]:
        """Offers the message to clients of `subscriptions`, in steps. Then `pending` waits for them, or is finished."""
        work, message = self._node.work, pending.message
        shares: dict[str, Share] = {}
        pending.unfinished += 1  # the first recipients may finish before the last ones are offered the message
        for start in range(0, len(subscriptions), SLICE):
            add_shares(shares, message, subscriptions[start : start + SLICE], self._sessions)
            if work.spend(min(SLICE, len(subscriptions))):
                yield True
        for client, share in shares.items():
            session = share.session
            if _is_subscribed(share) and self._is_for(session, pending):
                delivery = Delivery(client, pending, share.qos, share.retain, tuple(share.identifiers))
                self._deliverer.offer(session, pending, delivery)
            if work.spend(RECIPIENT + len(share.identifiers) // _IDENTIFIERS_A_UNIT):
                yield True
        pending.unfinished -= 1
        self._deliverer.offered(pending)

    def offer_at_once(self, pending: PendingMessage, subscriptions: Sequence[SessionSubscription]) -> None:
        """The same without steps, for few subscriptions."""
        for client, (qos, retain, identifiers) in wanted(pending.message, subscriptions, self._sessions):
            session = self._sessions[client]
            if self._is_for(session, pending):
                self._deliverer.offer(session, pending, Delivery(client, pending, qos, retain, identifiers))
        self._deliverer.offered(pending)

    def _is_for(self, session: Session, pending: PendingMessage) -> bool:
        """Whether a session whose subscriptions match gets the message, or has it already. A session that is sent
        retained messages, or was a moment ago, notes that this one has come."""
        message = pending.message
        if message.id in session.retained_sent or message.id in session.retained_bundles:
            return False
        if pending.position >= 0 and (session.client in pending.done or pending.offered_at < session.since):
            return False
        if message.retain and (session.subscribing or session.retained_sent):
            session.note_live(message, self._node.retained.find(message.topic))
        return True


def _is_subscribed(share: Share) -> bool:
    """Whether the session still has one of the subscriptions that matched. One that was replaced meanwhile misses
    nothing [MQTT-3.8.4-4]."""
    session = share.session
    if session.ended or session.is_group:
        return not session.ended and bool(session.subscriptions)
    present = session.subscriptions
    return any((now := present.get(s.filter)) is not None and now.continues(s) for s in share.subscriptions)


def add_shares(
    shares: dict[str, Share],
    message: Message,
    subscriptions: Sequence[SessionSubscription],
    sessions: dict[str, Session],
) -> None:
    """Adds `subscriptions` to the shares of their clients, except those with No Local of the sender (3.8.3.1)."""
    for subscription in subscriptions:
        record, client = subscription.record, subscription.client
        if record.no_local and client == message.source:
            continue
        share = shares.get(client)
        if share is None:
            session = sessions.get(client)
            if session is None:  # it has ended since the match
                continue
            share = shares[client] = Share(session)
        share.subscriptions.append(subscription)
        if record.qos > share.qos:
            share.qos = min(record.qos, message.qos)
        if record.retain_as_published and message.retain:
            share.retain = True
        if record.identifier is not None:
            share.identifiers.append(record.identifier)


def wanted(
    message: Message, subscriptions: Sequence[SessionSubscription], sessions: dict[str, Session]
) -> Iterable[tuple[str, tuple[int, bool, tuple[int, ...]]]]:
    """QoS, RETAIN and subscription identifiers of the PUBLISH to each client."""
    if len(subscriptions) == 1:  # as it mostly is
        (only,) = subscriptions
        record = only.record
        if record.no_local and only.client == message.source:
            return ()
        identifiers: tuple[int, ...] = () if record.identifier is None else (record.identifier,)
        retain = record.retain_as_published and message.retain
        return ((only.client, (min(record.qos, message.qos), retain, identifiers)),)
    shares: dict[str, Share] = {}
    add_shares(shares, message, subscriptions, sessions)
    return ((client, (s.qos, s.retain, tuple(s.identifiers))) for client, s in shares.items())


def find_matches(shard: Shard, topic: str, work: Work) -> Steps[list[SessionSubscription]]:
    """The shard's subscriptions that match."""
    found = shard.trie.begin(topic, SLICE)
    if isinstance(found, list):
        return found
    while True:
        if work.spend(SLICE):
            yield True
        if found.run(SLICE):
            return found.found


def slices(subscriptions: Sequence[SessionSubscription]) -> Iterable[Sequence[SessionSubscription]]:
    """As much of them at a time as is not interrupted."""
    if len(subscriptions) <= SLICE:
        return (subscriptions,) if subscriptions else ()
    return (subscriptions[start : start + SLICE] for start in range(0, len(subscriptions), SLICE))
