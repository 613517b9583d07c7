"""Starting: the state of shards from their spools' positions, the session log, the routes, the retained messages and
the logs behind the positions. The time it takes is bounded by sessions and by what is unacknowledged, not by history.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import structlog

from gateway.errors import GatewayError, SpoolError
from gateway.record import Record
from gateway.shard.changelog import CaughtUp, catch_up
from gateway.shard.checkpoint import ASSIGNMENTS, BOOT, CATCH_UP, FEEDS, INBOUND, SHARD, CatchUpPosition
from gateway.shard.earlier_spool import read_earlier, retire
from gateway.shard.ingress_fences import FENCES_KEY, counts, note_fences, use_fences
from gateway.shard.known_routes import KnownRoutes
from gateway.shard.node import Node
from gateway.shard.publishing import will_id
from gateway.shard.quarantine import quarantine
from gateway.shard.session import Session, client_of
from gateway.shard.session_recovery import SessionRecovery
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_home import ShardHome
from gateway.shard.shard_spool import Taken
from gateway.shard.spool import SpoolContents
from gateway.shard.start_steps import Steps, each_by_itself, together
from schemas.envelope import Meta
from schemas.errors import RecordError
from schemas.identity import shard_of

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Recovery:
    """Rebuilds the state of the shards `homes`, by number, and of what the gateway has beside them; afterwards the bus
    may be assigned with what that returns.

    `read` counts what that took: records by topic (of `egress` those that are to be read again), `spool` rows. That
    depends on sessions and on what is unacknowledged; of compacted topics on how far the broker has compacted them.
    `earlier` is the spool of versions that had one file for all shards. `warm` are session records that a standby has
    read: the topic is read on behind them; so is `routes`. `steps` gets how long each step took.
    `on_failed` gets each shard that cannot begin, with the reason; the others go on. Without it that is raised.
    """

    def __init__(
        self,
        node: Node,
        homes: Mapping[int, ShardHome],
        earlier: Path | None = None,
        warm: Mapping[int, SessionValues] | None = None,
        routes: KnownRoutes | None = None,
        steps: Steps | None = None,
        on_failed: Callable[[int, GatewayError], None] | None = None,
    ) -> None:
        self._on_failed = on_failed
        self._earlier = earlier
        self._routes = routes or known_routes(node)
        self._steps = steps or Steps(asyncio.get_running_loop().time)
        self._warm = warm or {}
        self._node = node
        self._homes = dict(homes)
        self._positions: dict[int, dict[str, bytes]] = {}
        self.read: Counter[str] = Counter()

    async def node(self) -> dict[tuple[str, int], int]:
        """Reads what is the gateway's; returns the positions from which to consume it."""
        node = self._node
        if node.settings.gateway.cluster.enabled:
            node.retained.share()
        ends = await node.bus.read(node.topics.retained, {0: 0}, self._fold_retained)
        node.retained.begin(ends[0])
        return {(node.topics.retained, 0): ends[0]} | await self._read_message_presence()

    async def shards(self, fence: Callable[[], Awaitable[None]] | None = None) -> dict[tuple[str, int], int]:
        """Restores the shards; returns the positions from which to consume what is always consumed. `fence` returns
        once the shards' fences on `ingress` are stored: nothing is read there before."""
        node, homes = self._node, self._homes
        sessions = SessionRecovery(node, homes, self.read, self._warm, self._steps)
        found, _, routes, ends, _ = await together(
            self._catch_up(sessions),
            sessions.read(),
            self._routes.read_on(),
            node.bus.end_offsets(node.topics.egress, node.settings.kafka.shards),
            _done(fence),
        )
        self.read["routes"] += routes
        self._steps.lap("read")
        self._leave_out(found.failed)
        contents = self._kept(await self._each(lambda home: self._start_spool(home, sessions, found)))
        if await self._take_up_earlier():
            contents = self._kept(await self._each(lambda home: home.spool.contents()))
        self._steps.lap("begin")
        start: dict[tuple[str, int], int]
        reserved, (start, inbound_ends) = await together(
            self._reserve_numbers(), self._rebuild(sessions, contents, ends)
        )
        self._kept(reserved)
        self._steps.lap("rebuild")
        for home in homes.values():
            home.unsettled.update(s for s in home.sessions.values() if s.is_unsettled)
        self._kept(await self._each(lambda home: self._resume_catch_up(home, inbound_ends)))
        return start

    async def _each(self, work: Callable[[ShardHome], Coroutine[Any, Any, T]]) -> dict[int, T | GatewayError]:
        """What comes of it for each shard, or why it failed. All do it at the same time."""
        return await each_by_itself({number: work(home) for number, home in self._homes.items()})

    def _kept(self, found: Mapping[int, T | GatewayError]) -> dict[int, T]:
        """What has not failed; the other shards are left out."""
        self._leave_out({number: one for number, one in found.items() if isinstance(one, GatewayError)})
        return {number: one for number, one in found.items() if not isinstance(one, GatewayError)}

    def _leave_out(self, failed: Mapping[int, GatewayError]) -> None:
        for number, error in failed.items():
            if self._on_failed is None:
                raise error
            if self._homes.pop(number, None) is not None:
                self._on_failed(number, error)

    async def _rebuild(
        self, sessions: SessionRecovery, contents: Mapping[int, SpoolContents], egress_ends: Mapping[int, int]
    ) -> tuple[dict[tuple[str, int], int], dict[int, int]]:
        """From what was read, and from `ingress`; returns the positions on `egress`, and the ends of `ingress`."""
        node, homes = self._node, self._homes
        start: dict[tuple[str, int], int] = {}
        for number, home in homes.items():
            raw, known = self._positions[number].get(SHARD), contents[number]
            at = home.state.restore(raw, known.finished_clients, known.finished_parts) if raw else 0
            start[node.topics.egress, number], home.state.reread_to = at, egress_ends[number]
            self.read["egress"] += max(0, egress_ends[number] - at)
            home.routes.recover(self._routes.of(number), self._routes.dropped(number))
        self._leave_out(sessions.apply())
        now_ms = asyncio.get_running_loop().time() * 1000
        for number, home in homes.items():
            known = contents[number]
            if home.arrivals is not None:  # before anything comes for their sessions
                await home.arrivals()
            self._restore_backlogs(home, known)
            home.keyed.load(known.keyed)
            home.state.bundles.restore(known.bundles)
            home.state.feeds.restore(known.sources, self._positions[number].get(FEEDS), now_ms)
        return start, await self._read_inbound()

    async def _catch_up(self, sessions: SessionRecovery) -> CaughtUp:
        """Brings the files up to the changelog's end."""
        node, files = self._node, {number: home.spool.file for number, home in self._homes.items()}
        now_ms = int(node.clock() * 1000)
        found = await catch_up(node.bus, node.topics.spool, files, now_ms, sessions.reader_of, self._steps)
        self.read["changelog"] = found.read
        for record, reason in found.malformed:
            quarantine(node, record, reason)
        return found

    async def _start_spool(self, home: ShardHome, sessions: SessionRecovery, found: CaughtUp) -> SpoolContents:
        """The home may commit: what its session log and its spool say of fences is known."""
        number = home.number

        async def start() -> SpoolContents:
            self._positions[number] = await home.spool.start(found.leftovers[number])
            return await home.spool.contents()

        _, contents = await together(sessions.begin(home, found.fenced[number], found.ends[number]), start())
        return cast(SpoolContents, contents)

    async def _take_up_earlier(self) -> bool:
        """The file of an earlier version, which had all shards, is taken up once: if no shard has a changelog yet."""
        earlier = read_earlier(self._earlier, self._node.settings.kafka.shards) if self._earlier is not None else None
        if self._earlier is None or earlier is None:
            return False
        for one in earlier:
            if not self._positions[one.shard]:
                self._positions[one.shard] = await self._homes[one.shard].spool.take_up(one)
        retire(self._earlier)
        log.info("the spool of an earlier version is taken up", file=str(self._earlier))
        return True

    def _reserve_numbers(self) -> Coroutine[Any, Any, dict[int, GatewayError | None]]:
        """Gives this process its number, and each shard numbers of assignments. Nobody may hear of them before what is
        returned has ended: then they are in the spools."""
        node = self._node
        saved = (positions.get(BOOT) for positions in self._positions.values())
        node.numbers.begin(
            node.clock(), max((msgspec.msgpack.decode(raw, type=int) for raw in saved if raw), default=0)
        )

        def reserve(home: ShardHome) -> Coroutine[Any, Any, None]:
            raw, numbers = self._positions[home.number].get(ASSIGNMENTS), home.state.assignment_numbers
            numbers.begin(msgspec.msgpack.decode(raw, type=int) if raw else 0)
            limit = numbers.next_limit
            mine = {BOOT: node.numbers.highest(home.number), ASSIGNMENTS: limit}
            encoded = {name: msgspec.msgpack.encode(value) for name, value in mine.items()}
            commit = self._commit(home, home.spool.take(), encoded)
            numbers.reserved(limit)
            return commit

        return each_by_itself({number: reserve(home) for number, home in self._homes.items()})

    async def _commit(self, home: ShardHome, taken: Taken, positions: dict[str, bytes]) -> None:
        """A file that cannot be written does not stop the start: Kafka has it, and a checkpoint writes it once it
        can."""
        try:
            await home.spool.commit(taken, positions)
        except SpoolError as error:
            self._node.counts["spool_failed_write"] += 1
            home.spool.outage.failed("write", error)

    def _restore_backlogs(self, home: ShardHome, contents: SpoolContents) -> None:
        for spool_key, (rows, size) in contents.backlogs.items():
            self.read["spool"] += rows
            session = home.sessions.get(client_of(spool_key))
            if session is None or session.spool_key != spool_key:
                home.orphans.append(spool_key)
            else:
                session.recover_backlog(rows, size)

    async def _read_message_presence(self) -> dict[tuple[str, int], int]:
        node = self._node
        topic, partitions = node.topics.message_presence_state, node.settings.kafka.ingress_partitions
        now = node.clock()

        def fold(record: Record) -> None:
            self.read["message_presence"] += 1
            node.message_presence.fold(record, now)

        ends = await node.bus.read(topic, dict.fromkeys(range(partitions), 0), fold)
        return {(topic, partition): end for partition, end in ends.items()}

    def _fold_retained(self, record: Record) -> None:
        self.read["retained"] += 1
        self._node.retained.fold(record)

    def _home_of(self, client: str) -> ShardHome | None:
        return self._homes.get(shard_of(client, self._node.settings.kafka.shards))

    async def _read_inbound(self) -> dict[int, int]:
        """QoS 2 messages, and wills, on `ingress` that the session log does not know of yet (G8, G9), and keyed ones
        that the spool does not know; of each shard behind its own position. And the fences there: what is void behind
        one is dropped by all homes, so it is not published yet. Returns the ends."""
        if not self._homes:  # all have failed
            return {}
        partitions = range(self._node.settings.kafka.ingress_partitions)
        for number, home in self._homes.items():
            raw = self._positions[number].get(INBOUND)
            home.state.inbound_from = msgspec.msgpack.decode(raw, type=dict[int, int]) if raw else {}
            home.inbound.restore(home.state.inbound_from)
        known = {number: home.state.inbound_from for number, home in self._homes.items()}
        wills = {
            will_id(session.client, session.will).encode(): session
            for home in self._homes.values()
            for session in home.sessions.values()
            if session.will is not None
        }
        states = [home.state for home in self._homes.values()]
        start = {p: min((position.get(p, 0) for position in known.values()), default=0) for p in partitions}

        def fold(record: Record) -> None:
            self.read["ingress"] += 1
            self._steps.done += 1
            headers = record.headers() or []
            if record.key() == FENCES_KEY:
                note_fences(record, self._node.settings.kafka.shards, states)
                return
            bereft = wills.get(headers[0][1]) if headers else None
            if bereft is not None and counts(record, self._homes[bereft.shard].state):
                del wills[headers[0][1]]
                bereft.will = None
                self._homes[bereft.shard].published_wills.append(bereft)
                return
            try:
                client = headers[1][1].decode()
            except (IndexError, AttributeError, UnicodeDecodeError):
                return
            home, offset = self._home_of(client), record.offset()
            if home is None or offset < known[home.number].get(record.partition(), 0):
                return
            is_counted = counts(record, home.state)
            if is_counted:
                home.keyed.recover(record)
            try:
                meta = Meta.decode(headers[2][1])
            except (RecordError, IndexError, AttributeError):
                return
            session = home.sessions.get(client) if meta.seq is not None else None
            if session is None or meta.seq is None or not _is_of(meta, session):
                return
            if not is_counted:
                return
            session.inbound.found(meta.seq, offset)

        ends = await self._node.bus.read(self._node.topics.ingress, start, fold)
        for home in self._homes.values():
            home.inbound.restore(ends)
        for partition, end in ends.items():
            self._node.publishes.stored(partition, end)
        return ends

    async def _resume_catch_up(self, home: ShardHome, read_to: Mapping[int, int]) -> None:
        """Reads on for subscriptions, and fences, whose routes were not in effect at the last checkpoint. Fences before
        `read_to` are known."""
        raw = self._positions[home.number].get(CATCH_UP)
        saved = msgspec.msgpack.decode(raw, type=CatchUpPosition) if raw else CatchUpPosition(None, 0)
        catch_up = home.catch_up
        catch_up.restore(saved.done_ms)
        waiting = [
            s.record
            for session in home.sessions.values()
            for s in session.subscriptions.values()
            if s.record.effective_ms > saved.done_ms
        ]
        fences_ms = await use_fences(self._node, home.routes, catch_up)
        if saved.reading is None and not waiting and not fences_ms:
            return
        partitions = range(self._node.settings.kafka.ingress_partitions)
        ends = await self._node.bus.end_offsets(self._node.topics.ingress, len(partitions))
        catch_up.reread(ends)
        catch_up.hold_until(max((r.effective_ms for r in waiting), default=0))
        catch_up.hold_until(fences_ms)
        if saved.reading is not None:
            await catch_up.resume(saved.reading, saved.begun or saved.reading)
            return
        lowest = {p: min((r.ingress_from.get(p, ends[p]) for r in waiting), default=ends[p]) for p in partitions}
        await catch_up.begin({p: min(at, read_to[p]) for p, at in lowest.items()} if fences_ms else lowest)


def known_routes(node: Node) -> KnownRoutes:
    """Routes of which nothing was read yet."""
    settings, lead_ms = node.settings, int(node.settings.router.route_lead_s * 1000)
    return KnownRoutes(node.bus, node.topics.routes, settings.kafka.shards, lead_ms, partial(quarantine, node))


async def _done(work: Callable[[], Awaitable[None]] | None) -> None:
    if work is not None:
        await work()


def _is_of(meta: Meta, session: Session) -> bool:
    """Whether a publish is of this session, and not of an earlier one of its client. Records of earlier versions do not
    say so; there only the time tells."""
    return meta.accepted >= session.born_us if meta.session is None else meta.session == session.incarnation
