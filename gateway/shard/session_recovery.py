"""Starting: the sessions of shards, and their share groups, from the session log; and what its fences say."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import msgspec

from gateway.errors import ShardTooNew
from gateway.record import Record
from gateway.shard.catch_up_reader import CLOCK_SLACK_MS
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.messages import GROUP_MARK, assigned_place, is_retained
from gateway.shard.node import Node
from gateway.shard.quarantine import quarantine
from gateway.shard.session import Session
from gateway.shard.session_records import conversation_of_key
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_home import ShardHome
from gateway.shard.share_messages import Join
from gateway.shard.start_steps import Steps
from gateway.shard.subscription import SessionSubscription
from mqtt.topics import split_shared
from schemas.errors import NewerVersion, RecordError
from schemas.identity import route_key, shard_of
from schemas.leases import Claimant
from schemas.reserved_topics import is_local
from schemas.session_log import (
    KIND_OF,
    AssignedRecord,
    ConversationRecord,
    GroupRecord,
    MemberRecord,
    OutgoingRecord,
    SessionKey,
    SessionOpened,
    Subscribed,
    SubscriptionRecord,
    WindowRecord,
    decode,
)
from schemas.session_log import Record as LogRecord


class SessionRecovery:
    """Rebuilds the sessions of `homes`, by number: `read`, then `begin` for each home, then `apply`. `counts` has the
    number of records read by topic; `warm` what a standby has read; `steps` learns of its progress."""

    def __init__(
        self,
        node: Node,
        homes: Mapping[int, ShardHome],
        counts: Counter[str],
        warm: Mapping[int, SessionValues],
        steps: Steps,
    ) -> None:
        self._steps = steps
        self._node = node
        self._homes = homes
        self._counts = counts
        self._claimant = Claimant(node.settings.gateway.name, node.numbers.boot)
        self._fenced = {number: self.reader_of(number) for number in homes}
        self._ends: dict[int, int] = {}
        self._values = {n: warm[n] if n in warm else SessionValues(FencedPartition(n)) for n in homes}
        for number, values in self._values.items():
            values.go_on(self._fenced[number])
        self._malformed: list[tuple[Record, str]] = []

    def reader_of(self, number: int) -> FencedPartition:
        """What says what counts on a partition of the shard, for its home."""
        return FencedPartition(number, self._homes[number].spool.epoch, self._claimant, self._is_malformed)

    def _is_malformed(self, record: Record, reason: str) -> None:
        self._malformed.append((record, reason))

    async def read(self) -> None:
        """The session log up to its present end. Raises BusError."""
        node, values = self._node, self._values

        def fold(record: Record) -> None:
            self._counts["sessions"] += 1
            self._steps.done += 1
            values[record.partition()].take(record)

        start = {number: known.position for number, known in values.items()}
        self._ends = await node.bus.read(node.topics.sessions, start, fold)
        for record, reason in self._malformed:
            quarantine(node, record, reason)

    async def begin(self, home: ShardHome, spool: FencedPartition, spool_end: int) -> None:
        """The home may write: `spool` has read its partition of the topic `spool` up to `spool_end`. It writes again
        what void records have overwritten in the session log. Raises Outranked, ShardLost, BusError.

        A site whose gateways shared shards before has fences. What a gateway writes there without others must count
        too, so it writes in the highest epoch that it finds.
        """
        number = home.number
        sessions, epoch = self._fenced[number], home.spool.epoch
        if not (self._node.settings.gateway.cluster.enabled and epoch):
            epoch = max(epoch, sessions.fences.epoch, spool.fences.epoch)
            home.writer.begin(epoch)
            home.spool.begin(epoch, spool, spool_end, None)
            return
        sessions.check()
        spool.check()
        home.writer.begin(epoch)
        write_barrier, mender = home.writer.write_barrier, home.mender
        await home.promises.begin(sessions, self._ends[number], write_barrier, mender.mend, mender.remove)
        home.spool.begin(epoch, spool, spool_end, home.promises.confirm)
        for key in sessions.fences.unmended:
            valid = self._values[number].find(key)
            home.writer.rewrite(key, None if valid is None else valid.value())

    def apply(self) -> dict[int, ShardTooNew]:
        """Makes the sessions that were read. Returns the shards that cannot begin: without a record of a later release
        their sessions would not be what clients rely on."""
        failed: dict[int, ShardTooNew] = {}
        found = (record for number in self._homes for record in self._values[number].records())
        for record in sorted(found, key=_kind_order):
            number = record.partition()
            if number in failed:
                continue
            try:
                key = SessionKey.decode(record.key() or b"")
                self._apply(self._homes[number], key, decode(key.kind, record.value() or b""))
            except NewerVersion as error:
                failed[number] = ShardTooNew(number, "sessions", str(error))
            except RecordError as error:
                quarantine(self._node, record, str(error))
        self._values.clear()
        return failed

    def _apply(self, home: ShardHome, key: SessionKey, record: LogRecord) -> None:
        self._node.numbers.number_above(_highest_number(record))
        if isinstance(record, SessionOpened):
            session = Session(key.client, home.number, record.since, record.born_us, record.epoch)
            session.recover_life(record)
            if record.disconnected_ms is None:
                now_ms = self._node.broker_clock.ms(asyncio.get_running_loop().time())
                session.may_have_been_sent(now_ms + CLOCK_SLACK_MS)
            else:  # without slack: what came just behind its end would not expire, nor make room in a full queue
                session.may_have_been_sent(record.disconnected_ms - 1)
            home.sessions[key.client] = session
            return
        if isinstance(record, GroupRecord):
            self._recover_group(home, key, record)
            return
        if isinstance(record, MemberRecord):
            _, name, client = (*key.client.split(GROUP_MARK), "", "")[:3]
            shard = shard_of(client, self._node.settings.kafka.shards)
            member = Join(name, client, record.session, shard, record.subscription, None, None)
            home.shares.groups.recover(member, is_logged=True)
            return
        found = home.sessions.get(key.client)
        if found is None:
            return
        if isinstance(record, Subscribed):
            found.retained_bundles = {} if record.bundles is msgspec.UNSET else record.bundles
            for subscription in record.subscriptions:
                found.subscriptions[subscription.filter] = SessionSubscription(key.client, subscription)
                if split_shared(subscription.filter) is not None:
                    self._recover_member(home, found, subscription)
                    continue
                home.state.trie.add(subscription.filter, key.client, found.subscriptions[subscription.filter])
                if not is_local(subscription.filter):
                    home.routes.recount(route_key(subscription.filter))
        elif isinstance(record, WindowRecord):
            found.recover(record)
            home.spool.number_above(record.settled.row)

    def _recover_member(self, home: ShardHome, session: Session, record: SubscriptionRecord) -> None:
        name, shares = record.filter, home.shares
        shares.members.belongs(session, name)
        of_group = self._homes.get(shares.shard_of(name))
        if of_group is not None:
            joining = Join(name, session.client, session.incarnation, home.number, record, None, None)
            of_group.shares.groups.recover(joining, is_logged=False)

    def _recover_group(self, home: ShardHome, key: SessionKey, record: GroupRecord) -> None:
        """What a group has assigned; also of one whose last member has left. Or who has one of its conversations."""
        if record.conversation is not msgspec.UNSET:
            self._recover_conversation(home, key, record, record.conversation)
            return
        name, shares = key.client.removeprefix(GROUP_MARK), home.shares
        record = self._of_present_version(record, home.number)
        group = shares.groups.find(name)
        if group is None and record.assigned:
            group = shares.groups.recover_without_members(name, record.born_us)
        if group is None:
            home.ended_groups.append(key)
            return
        shares.dispatcher.recover(group, record)
        home.spool.number_above(record.settled.row)

    @staticmethod
    def _recover_conversation(
        home: ShardHome, key: SessionKey, record: GroupRecord, conversation: ConversationRecord
    ) -> None:
        name, of = conversation_of_key(key) or ("", None)
        group = home.shares.groups.find(name)
        if of is None or group is None or not group.members or group.born_us != record.born_us:
            home.ended_groups.append(key)
        else:
            home.shares.dispatcher.conversations.recover(group, of, conversation)

    def _of_present_version(self, record: GroupRecord, shard: int) -> GroupRecord:
        """Numbers what a record of an earlier version has; where that gave a packet id, the session knows it now."""
        assigned = list(record.assigned)
        for lent in record.lent:
            number = self._homes[shard].state.assignment_numbers.take() or 0
            of = AssignedRecord(number, lent.partition, lent.offset, lent.client, 0, lent.born_us)
            assigned.append(of)
            session = self._find(lent.client)
            if lent.packet_id and session is not None and session.incarnation == of.session:
                place = assigned_place(shard, number)
                session.recover_assignments([OutgoingRecord(lent.packet_id, *place, lent.released)])
        return msgspec.structs.replace(record, assigned=assigned, lent=[])

    def _find(self, client: str) -> Session | None:
        home = self._home_of(client)
        return None if home is None else home.sessions.get(client)

    def _home_of(self, client: str) -> ShardHome | None:
        return self._homes.get(shard_of(client, self._node.settings.kafka.shards))


def _highest_number(record: LogRecord) -> int:
    """The highest number of those that :class:`gateway.shard.numbers.ProcessNumbers` gives, 0 if there is none."""
    match record:
        case SessionOpened():
            return max(record.born_us, 0 if record.will is None else record.will.of_us)
        case WindowRecord():
            places = [*(one.place for one in record.outgoing), *record.open, *record.dropped]
            return max((place[1] for place in places if is_retained(place)), default=0)
        case Subscribed():
            return max((one.group_born_us for one in record.subscriptions), default=0)
        case GroupRecord():
            return record.born_us
        case MemberRecord():
            return record.subscription.group_born_us


def _kind_order(record: Record) -> int:
    """Sessions, then subscriptions, which make share groups, then windows: what belongs to nothing is left out."""
    kinds = [*KIND_OF.values()]
    kind = (record.key() or b"").rpartition(b"\x00")[2].decode(errors="replace")
    return kinds.index(kind) if kind in kinds else len(kinds)
