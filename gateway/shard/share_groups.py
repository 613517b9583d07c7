"""The share groups of one shard and their members: groups begin with their first member and end with their last (MQTT
5.0, 4.8.2).

Members are found again after a restart: each one's subscription in the session log says since when and from where on
the group gets messages.
"""

from collections.abc import Callable, Iterator

import msgspec

from gateway.shard.group_clock import GroupClock
from gateway.shard.numbers import ProcessNumbers
from gateway.shard.route_start import RouteStart
from gateway.shard.shard import Shard
from gateway.shard.share_group import ShareGroup, filter_of
from gateway.shard.share_member import Member
from gateway.shard.share_messages import Join
from gateway.shard.subscription import SessionSubscription
from schemas.session_log import SubscriptionRecord


class ShareGroups:
    """Makes groups, and adds and removes members. `most_assigned` bounds what members of a group have in hand;
    `clock` gives seconds since the epoch; the attribute of that name is the groups' own."""

    def __init__(
        self,
        shard: Shard,
        routes: RouteStart,
        numbers: ProcessNumbers,
        most_assigned: int,
        clock: Callable[[], float],
    ) -> None:
        self._shard = shard
        self._routes = routes
        self._numbers = numbers
        self._most_assigned = most_assigned
        self._clock = clock
        self._groups: dict[str, ShareGroup] = {}
        self.clock = GroupClock()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ShareGroup]:
        return iter(list(self._groups.values()))

    def tick(self) -> None:
        """Every second."""
        self.clock.tick(self._clock())

    def find(self, name: str) -> ShareGroup | None:
        """The group `$share/name/filter`, also one that only waits for results."""
        return self._groups.get(name)

    def has_members(self, name: str) -> bool:
        """Whether a group has a route in use, for its members."""
        group = self.find(name)
        return group is not None and group.subscription is not None

    def begin(self, name: str, effective_ms: int, start: dict[int, int]) -> None:
        """Begins a group for its first member. Its route is in use: since when, and from where on (see
        :meth:`RouteStart.use`)."""
        if self.has_members(name):  # meanwhile
            self._routes.leave(filter_of(name))
        else:
            start = self._routes.unpassed(start)
            self._begin(name, self.find(name), self._shard.received_to, None, effective_ms, start)

    def join(self, joining: Join) -> ShareGroup:
        """Adds a member to a group that has begun, or gives it new options."""
        group = self._groups[joining.group]
        self._add(group, joining)
        return group

    def recover(self, joining: Join, *, is_logged: bool) -> None:
        """Adds a member that was found in the session log: in a record of the group (`is_logged`), or by its own
        subscription only, which is how earlier versions had it."""
        record, group = joining.record, self.find(joining.group)
        if group is None or group.subscription is None or record.group_born_us > group.born_us:
            if group is None or group.subscription is None:
                self._routes.recount(filter_of(joining.group))
            group = self._begin(
                joining.group,
                group,
                record.group_since,
                record.group_born_us,
                record.effective_ms,
                record.ingress_from,
            )
        self._add(group, joining, is_logged=is_logged)

    def recover_without_members(self, name: str, born_us: int) -> ShareGroup:
        """A group whose last member has left, but not what it has assigned."""
        return self._make(name, self._shard.received_to, born_us)

    def record_of(self, group: ShareGroup, of_member: SubscriptionRecord) -> SubscriptionRecord:
        """The member's subscription, with what the group is."""
        if group.subscription is None:
            raise AssertionError("a group has a subscription while it has members")
        record = group.subscription.record
        return msgspec.structs.replace(
            of_member,
            effective_ms=record.effective_ms,
            ingress_from=record.ingress_from,
            group_since=group.since,
            group_born_us=group.born_us,
        )

    def match(self, group: ShareGroup) -> None:
        """A message is queued for the group at the highest QoS that any member may get it with."""
        if group.subscription is not None and group.subscription.record.qos != group.highest_qos:
            record = group.subscription.record
            self._subscribe(group, record.effective_ms, record.ingress_from, group.highest_qos)

    def unsubscribe(self, group: ShareGroup) -> None:
        """The last member has left: no more messages come."""
        topic_filter = filter_of(group.name)
        group.subscriptions.clear()
        self._shard.trie.remove(topic_filter, group.client)
        self._routes.leave(topic_filter)

    def remove(self, group: ShareGroup) -> None:
        """The group is over."""
        group.end()
        del self._groups[group.name]
        del self._shard.sessions[group.client]

    def _add(self, group: ShareGroup, joining: Join, *, is_logged: bool = False) -> None:
        member = Member(joining.client, joining.session, joining.shard, joining.record, joining.capacity)
        member.away_since = self.clock.now
        group.join(member)
        if is_logged:
            group.note_logged(member)
        self.match(group)

    def _begin(
        self,
        name: str,
        group: ShareGroup | None,
        since: int,
        born_us: int | None,
        effective_ms: int,
        ingress_from: dict[int, int],
    ) -> ShareGroup:
        """Begins a group, or `group` again that had no members left; or one that the first members found had belonged
        to begins later than others say."""
        if group is None:
            number = self._numbers.session(self._shard.number, self._clock()) if born_us is None else born_us
            group = self._make(name, since, number)
        else:
            group.begin_again(since, born_us)
        self._subscribe(group, effective_ms, ingress_from)
        return group

    def _make(self, name: str, since: int, born_us: int) -> ShareGroup:
        group = ShareGroup(name, self._shard.number, since, born_us, self._most_assigned)
        self._groups[name] = self._shard.sessions[group.client] = group
        return group

    def _subscribe(self, group: ShareGroup, effective_ms: int, ingress_from: dict[int, int], qos: int = 0) -> None:
        topic_filter = filter_of(group.name)
        record = SubscriptionRecord(topic_filter, qos, False, False, 2, None, effective_ms, ingress_from)
        subscription = SessionSubscription(group.client, record)
        group.subscriptions[topic_filter] = subscription
        self._shard.trie.add(topic_filter, group.client, subscription)
