"""Who is a member of which share group: groups begin with their first member and end with their last (MQTT 5.0, 4.8.2).

A group has no record of its own that says it exists: each member's subscription says since when and from where on the
group gets messages, so that it is found again after a restart.
"""

from collections.abc import Callable
from typing import Protocol

from gateway.shard.lending import Lender
from gateway.shard.routes import ShardRoutes
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.share_group import GROUP_MARK, Member, ShareGroup, borrower_of
from gateway.shard.subscription import SessionSubscription
from mqtt.topics import split_shared
from schemas.identity import route_key, shard_of
from schemas.session_log import SubscriptionRecord


def filter_of(name: str) -> str:
    """The topic filter of the group `$share/<share name>/<filter>`."""
    shared = split_shared(name)
    if shared is None:
        raise ValueError(f"{name!r} is not a shared subscription")
    return shared[1]


class SharingHome(Protocol):
    """The home of one shard, as far as its groups need it."""

    @property
    def state(self) -> Shard: ...
    @property
    def routes(self) -> ShardRoutes: ...


class ShareGroups:
    """Makes and ends groups, `count` of them at present, and adds and removes members. `home_of` gives the home of one
    of `shards`; a group is in the shard of its name."""

    def __init__(
        self,
        shards: int,
        home_of: Callable[[int], SharingHome],
        lender: Lender,
        most_lent: int,
        clock: Callable[[], float],
    ) -> None:
        self._shards = shards
        self._home_of = home_of
        self._lender = lender
        self._most_lent = most_lent
        self._clock = clock
        self._born_us = 0
        self.count = 0

    def find(self, name: str) -> ShareGroup | None:
        found = self._home_of(self.shard_of(name)).state.sessions.get(GROUP_MARK + name)
        return found if isinstance(found, ShareGroup) else None

    def shard_of(self, name: str) -> int:
        """The shard in which a group is, or would be."""
        return shard_of(GROUP_MARK + name, self._shards)

    def begin(self, name: str, effective_ms: int, ingress_from: dict[int, int]) -> ShareGroup:
        """A new group, without members as yet; its route is in use already."""
        self._born_us = max(int(self._clock() * 1e6), self._born_us + 1)
        since = self._home_of(self.shard_of(name)).state.received_to
        return self._make(name, since, self._born_us, effective_ms, ingress_from)

    def join(self, group: ShareGroup, session: Session, record: SubscriptionRecord) -> None:
        """Adds a member, or gives it new options."""
        group.members[session.client] = Member(session, record)
        borrower_of(session).groups[group.name] = group
        self._match(group)
        if session.link is not None and session.client not in group.connected:
            self._lender.connect(group, session)

    def leave(self, name: str, session: Session) -> None:
        """A member is one no more: what it was sent it may still acknowledge."""
        group = self.find(name)
        if group is None or group.members.pop(session.client, None) is None:
            return
        borrower_of(session).groups.pop(name, None)
        self._lender.disconnect(group, session)
        if group.members:
            self._match(group)
        else:
            self._end(group)

    def recover(self, session: Session, record: SubscriptionRecord) -> None:
        """A member found in the session log."""
        group = self.find(record.filter)
        if group is None:
            since, born_us, effective_ms = record.group_since, record.group_born_us, record.effective_ms
            group = self._make(record.filter, since, born_us, effective_ms, record.ingress_from)
            self._home_of(group.shard).routes.recount(route_key(filter_of(group.name)))
        elif record.group_born_us > group.born_us:  # of an earlier group the member had just left
            group.since, group.born_us = record.group_since, record.group_born_us
            self._subscribe(group, record.effective_ms, record.ingress_from)
        self._born_us = max(self._born_us, group.born_us)
        self.join(group, session, record)

    def _make(self, name: str, since: int, born_us: int, effective_ms: int, ingress_from: dict[int, int]) -> ShareGroup:
        shard = self._home_of(self.shard_of(name)).state
        group = ShareGroup(name, shard.number, since, born_us, self._most_lent)
        shard.sessions[group.client] = group
        self.count += 1
        self._subscribe(group, effective_ms, ingress_from)
        return group

    def _subscribe(self, group: ShareGroup, effective_ms: int, ingress_from: dict[int, int], qos: int = 0) -> None:
        topic_filter = filter_of(group.name)
        record = SubscriptionRecord(topic_filter, qos, False, False, 2, None, effective_ms, ingress_from)
        subscription = SessionSubscription(group.client, record)
        group.subscriptions[topic_filter] = subscription
        self._home_of(group.shard).state.trie.add(topic_filter, group.client, subscription)

    def _match(self, group: ShareGroup) -> None:
        """A message is queued for the group at the highest QoS that any member may get it with."""
        record = group.subscription.record
        if record.qos != group.highest_qos:
            self._subscribe(group, record.effective_ms, record.ingress_from, group.highest_qos)

    def _end(self, group: ShareGroup) -> None:
        home, topic_filter = self._home_of(group.shard), filter_of(group.name)
        del home.state.sessions[group.client]
        self.count -= 1
        home.state.trie.remove(topic_filter, group.client)
        home.routes.leave(route_key(topic_filter), self._clock())
        self._lender.end_group(group)
