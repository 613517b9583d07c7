"""Starting: a home's state from the spool's positions, the session log, the routes, the retained messages and the logs
behind the positions. The time it takes is bounded by sessions and by what is unacknowledged, not by history."""

from collections import Counter

import msgspec
import structlog

from gateway.bus import Record
from gateway.errors import SpoolError
from gateway.shard.checkpoint import BOOT, INBOUND, INSTANT, SHARD, InstantPosition
from gateway.shard.context import HomeContext
from gateway.shard.instant import CLOCK_SLACK_MS, InstantReader
from gateway.shard.keyed import KeyedMessages
from gateway.shard.publishing import will_id
from gateway.shard.quarantine import quarantine
from gateway.shard.session import Session, SessionSubscription, client_of
from gateway.shard.share_group import ShareGroup
from gateway.shard.sharing import ShareGroups
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from mqtt.topics import split_shared
from schemas.envelope import Meta
from schemas.errors import RecordError
from schemas.identity import route_key
from schemas.session_log import KIND_OF, GroupRecord, SessionKey, SessionOpened, Subscribed, WindowRecord, decode

log = structlog.get_logger(__name__)


class Recovery:
    """Rebuilds the state of all shards; afterwards the bus may be assigned with `start`. `orphans` are names in the
    spool whose sessions are over, `ended_groups` records of share groups that have no member any more.

    `read` counts what that took: records by topic (of `egress` those that are to be read again), `spool` rows. That
    depends on sessions and on what is unacknowledged; of compacted topics on how far the broker has compacted them.
    """

    def __init__(
        self,
        context: HomeContext,
        instant: InstantReader,
        keyed: KeyedMessages,
        groups: ShareGroups,
    ) -> None:
        self._context = context
        self._instant = instant
        self._keyed = keyed
        self._groups = groups
        self.orphans: list[str] = []
        self.published_wills: list[Session] = []
        self.read: Counter[str] = Counter()
        self.ended_groups: list[SessionKey] = []

    async def run(self) -> dict[tuple[str, int], int]:
        """Restores everything; returns the positions from which to consume what is always consumed."""
        context = self._context
        positions = await context.spool.call(Spool.positions)
        await self._boot(positions.get(BOOT))
        context.next_mid, context.next_row = await context.spool.call(Spool.last_numbers)
        ends = await context.bus.end_offsets(context.topics.egress, len(context.shards))
        start: dict[tuple[str, int], int] = {}
        for shard in context.shards:
            raw = positions.get(f"{SHARD}{shard.number}")
            start[context.topics.egress, shard.number] = shard.restore(raw) if raw else 0
            shard.replay_to = ends[shard.number]
            self.read["egress"] += max(0, ends[shard.number] - start[context.topics.egress, shard.number])
        await context.bus.read(context.topics.routes, {0: 0}, self._fold_route)
        retained_ends = await context.bus.read(context.topics.retained, {0: 0}, self._fold_retained)
        start[context.topics.retained, 0] = retained_ends[0]
        context.retained.begin(retained_ends[0])
        start |= await self._read_message_presence()
        await self._read_sessions()
        context.committed_row = context.next_row
        for spool_key, (rows, size) in (await context.spool.call(Spool.backlogs)).items():
            self.read["spool"] += rows
            session = context.session(client_of(spool_key))
            if session is None or session.spool_key != spool_key:
                self.orphans.append(spool_key)
            else:
                session.backlog, session.queued_bytes = rows, size
        self._keyed.load(await context.spool.call(Spool.keyed))
        await self._read_inbound(positions.get(INBOUND))
        context.unsettled.update(s for shard in context.shards for s in shard.sessions.values() if s.is_unsettled)
        await self._resume_instant(positions.get(INSTANT))
        return start

    async def _boot(self, last: bytes | None) -> None:
        """Gives this process its number, and has it in the spool before anybody hears it. A spool that cannot be
        written does not stop the start: a checkpoint has the number too, once it can."""
        context = self._context
        now = context.clock()
        context.boot = max(int(now * 1e6), msgspec.msgpack.decode(last, type=int) + 1 if last else 0)
        try:
            await context.spool.call(Spool.commit, SpoolBatch(positions={BOOT: msgspec.msgpack.encode(context.boot)}))
        except SpoolError as error:
            context.counts["spool_failed_write"] += 1
            context.outage.failed("write", error, now)

    async def _read_message_presence(self) -> dict[tuple[str, int], int]:
        context = self._context
        topic, partitions = context.topics.message_presence_state, context.settings.kafka.ingress_partitions
        now = context.clock()

        def fold(record: Record) -> None:
            self.read["message_presence"] += 1
            context.message_presence.fold(record, now)

        ends = await context.bus.read(topic, dict.fromkeys(range(partitions), 0), fold)
        return {(topic, partition): end for partition, end in ends.items()}

    def _fold_retained(self, record: Record) -> None:
        self.read["retained"] += 1
        self._context.retained.fold(record)

    def _fold_route(self, record: Record) -> None:
        self.read["routes"] += 1
        try:
            self._context.routes.recover(record)
        except RecordError as error:
            quarantine(self._context, record, str(error))

    async def _read_sessions(self) -> None:
        context = self._context
        values: dict[bytes, Record] = {}

        def fold(record: Record) -> None:
            self.read["sessions"] += 1
            key = record.key() or b""
            if record.value() is None:
                values.pop(key, None)
            else:
                values[key] = record

        await context.bus.read(context.topics.sessions, dict.fromkeys(range(len(context.shards)), 0), fold)
        for record in sorted(values.values(), key=_kind_order):
            try:
                key = SessionKey.decode(record.key() or b"")
                self._apply(key, decode(key.kind, record.value() or b""))
            except RecordError as error:
                quarantine(context, record, str(error))

    def _apply(self, key: SessionKey, record: object) -> None:
        shard = self._context.shard_for(key.client)
        if isinstance(record, SessionOpened):
            session = Session(key.client, shard.number, record.since, record.born_us)
            session.expiry_s, session.will, session.in_log = record.expiry_s, record.will, True
            session.disconnected_ms, session.user = record.disconnected_ms, record.user
            if record.disconnected_ms is None:
                session.sent_to_ms = int(self._context.clock() * 1000) + CLOCK_SLACK_MS
            else:  # without slack: what came just behind its end would not expire, nor make room in a full queue
                session.sent_to_ms = record.disconnected_ms - 1
            shard.sessions[key.client] = session
            return
        found = shard.sessions.get(key.client)
        if found is None:
            if isinstance(record, GroupRecord):
                self.ended_groups.append(key)
            return
        if isinstance(record, Subscribed):
            for subscription in record.subscriptions:
                found.subscriptions[subscription.filter] = SessionSubscription(key.client, subscription)
                if split_shared(subscription.filter) is not None:
                    self._groups.recover(found, subscription)
                    continue
                shard.trie.add(subscription.filter, key.client, found.subscriptions[subscription.filter])
                self._context.routes.recount(shard.number, route_key(subscription.filter))
        elif isinstance(record, WindowRecord):
            found.recover(record)
            self._context.next_row = max(self._context.next_row, record.settled.row)  # none is given twice
        elif isinstance(record, GroupRecord) and isinstance(found, ShareGroup):
            found.recover_loans(record, self._context.session)
            self._context.next_row = max(self._context.next_row, record.settled.row)

    async def _read_inbound(self, raw: bytes | None) -> None:
        """QoS 2 messages, and wills, on `ingress` that the session log does not know of yet (G8, G9), and keyed ones
        that the spool does not know."""
        context = self._context
        wills = {
            will_id(session.client, session.will).encode(): session
            for shard in context.shards
            for session in shard.sessions.values()
            if session.will is not None
        }
        known = msgspec.msgpack.decode(raw, type=dict[int, int]) if raw else {}
        start = {p: known.get(p, 0) for p in range(context.settings.kafka.ingress_partitions)}

        def fold(record: Record) -> None:
            self.read["ingress"] += 1
            headers = record.headers() or []
            bereft = wills.pop(headers[0][1], None) if headers else None
            if bereft is not None:
                bereft.will = None
                self.published_wills.append(bereft)
                return
            self._keyed.recover(record)
            try:
                meta = Meta.decode(headers[2][1])
                session = context.session(headers[1][1].decode()) if meta.seq is not None else None
            except (RecordError, IndexError, AttributeError, UnicodeDecodeError):
                return
            offset, seq = record.offset(), meta.seq
            if session is None or seq is None or meta.accepted < session.born_us:
                return  # or it belongs to an earlier session of the client
            if offset > session.received_until:
                session.received.add(seq)
                session.received_until = offset
                session.inbound_dirty = True

        context.published_to.update(await context.bus.read(context.topics.ingress, start, fold))

    async def _resume_instant(self, raw: bytes | None) -> None:
        """Reads on for subscriptions whose routes were not in effect at the last checkpoint."""
        saved = msgspec.msgpack.decode(raw, type=InstantPosition) if raw else InstantPosition(None, 0)
        self._instant.done_ms = saved.done_ms
        waiting = [
            s.record
            for shard in self._context.shards
            for session in shard.sessions.values()
            for s in session.subscriptions.values()
            if s.record.effective_ms > saved.done_ms
        ]
        if saved.reading is None and not waiting:
            return
        partitions = range(self._context.settings.kafka.ingress_partitions)
        ends = await self._context.bus.end_offsets(self._context.topics.ingress, len(partitions))
        self._instant.replay_to = ends
        self._instant.hold_until(max((r.effective_ms for r in waiting), default=0))
        if saved.reading is not None:
            await self._instant.resume(saved.reading, saved.begun or saved.reading)
            return
        lowest = {p: min((r.ingress_from.get(p, ends[p]) for r in waiting), default=ends[p]) for p in partitions}
        await self._instant.begin(lowest)


def _kind_order(record: Record) -> int:
    """Sessions, then subscriptions, which make share groups, then windows: what belongs to nothing is left out."""
    kinds = [*KIND_OF.values()]
    kind = (record.key() or b"").rpartition(b"\x00")[2].decode(errors="replace")
    return kinds.index(kind) if kind in kinds else len(kinds)
