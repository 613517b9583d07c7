"""All shards of one gateway: their start and end, the records that come for them, and whose home a client has."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from gateway.errors import BusError, GatewayError, NotAdmitted, ShardLost, SpoolError
from gateway.shard.arrivals import Arrival, Kicked
from gateway.shard.changelog import Changelog
from gateway.shard.egress_consumer import EgressConsumer
from gateway.shard.fences import write_fences
from gateway.shard.ingress_fences import write_ingress_fences
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.link import Link
from gateway.shard.moved_clients import MovedClients
from gateway.shard.node import Node
from gateway.shard.presence import PresenceReporter
from gateway.shard.publishes import InboundPosition
from gateway.shard.publishing import Publisher
from gateway.shard.record_batches import RecordBatches
from gateway.shard.recovery import Recovery, known_routes
from gateway.shard.regular_work import RegularWork
from gateway.shard.rules import ClientRules
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.shard_home import Attached, ShardHome
from gateway.shard.shard_spool import ShardSpool, SpoolThread
from gateway.shard.share_messages import Sender
from gateway.shard.share_ways import ShareWays
from gateway.shard.shares import Shares
from gateway.shard.spool import SpoolSize
from gateway.shard.spool_files import OpenedFiles
from gateway.shard.start_steps import Started, Steps, failures_of, together
from mqtt.codes import ReasonCode
from schemas.identity import shard_of
from schemas.leases import Claimant
from schemas.origin import HTTP_FLAG

log = structlog.get_logger(__name__)


class Home:
    """Has the homes of all shards, `shards`, by number, each with its spool of `files`. `recovered` counts what was
    read at the start (:class:`gateway.shard.recovery.Recovery`). `on_superseded` gets the number of a shard, the epoch
    of its home here and that of the fence, when the home has read the fence of another gateway."""

    def __init__(self, node: Node, files: dict[int, SpoolThread], earlier: Path | None = None) -> None:
        self._node = node
        self.recovered: dict[str, int] = {}
        self.on_superseded: Callable[[int, int, int], None] = lambda _shard, _epoch, _fence: None
        self.moved_clients: MovedClients | None = None
        self.message_presence = node.message_presence
        self.hold = node.hold
        self._tasks: set[asyncio.Task[None]] = set()
        self._earlier = earlier
        self._routes = known_routes(node) if node.settings.gateway.cluster.enabled else None
        self._ingress = IngressReader(node.bus, node.topics.ingress, node.settings.kafka.ingress_partitions)
        self._visiting = InboundPosition(node.publishes)
        self._presence = PresenceReporter(node)
        self._consumers: dict[int, EgressConsumer] = {}
        soon = asyncio.get_running_loop().call_soon
        self._ways = ShareWays(node.bus, node.topics.egress, self._shares_of, node.ready, soon, node.on_fatal)
        self.shards = {number: self._home(number, file, 0) for number, file in files.items()}
        self.records = RecordBatches(node, self._ingress, self._consumers).take
        of = self.shards, self._ingress, self._routes, self._presence
        self.regular = RegularWork(node, *of, lambda: self.records([]))

    def _home(self, number: int, file: SpoolThread, epoch: int) -> ShardHome:
        """The home of a shard in `epoch`; records come to it from now on, as far as they are read."""
        node = self._node
        changelog = Changelog(node.bus, node.topics.spool, number)
        spool = ShardSpool(number, file, changelog, node.stopping, node.counts, epoch)
        home = ShardHome(
            number,
            node,
            spool,
            self._ingress,
            self._instructed_to,
            partial(self._ways.post, Sender(number, epoch)),
            self._presence,
            self._spawn,
            lambda *superseded: self.on_superseded(*superseded),
        )
        self._consumers[number] = home.egress
        if self.moved_clients is not None:
            home.arrivals = partial(self.moved_clients.arrive, home)
        return home

    async def start(self) -> None:
        """Recovers all sessions and begins to consume; clients may attach afterwards. Without a shard, which others
        bring later, it recovers what is the gateway's."""
        recovery = Recovery(self._node, self.shards, self._earlier)
        start = await recovery.shards() if self.shards else {}
        start |= await recovery.node()
        self.recovered = dict(recovery.read)
        for error in (await self._begin(start, *self.shards.values())).values():
            raise error
        self._presence.heartbeat()  # before any client of this process: those of earlier ones are void from now on
        for work in (self.regular.heartbeats, self.regular.checkpoints, self.regular.housekeeping):
            self._spawn(work())

    async def start_shards(
        self,
        epochs: Mapping[int, int],
        open_files: Callable[[], Awaitable[OpenedFiles]],
        is_owned: Callable[[int, int], bool],
        steps: Steps | None = None,
    ) -> Started:
        """Takes up shards that no other home has any more, while others run; `epochs` are those in which they are this
        gateway's; `steps` gets how long each step took. Fences are written while files are opened. Of a shard that is
        no longer owned, by `is_owned`, once its state is read, and of one that fails, the file is closed. Raises
        BusError, and then none has started."""
        steps = steps or Steps(asyncio.get_running_loop().time)
        started: dict[int, ShardHome] = {}
        claimant = Claimant(self._node.settings.gateway.name, self._node.numbers.boot)
        fenced = {number: epoch for number, epoch in epochs.items() if epoch}
        writing = asyncio.ensure_future(write_fences(self._node.bus, self._node.topics, fenced, claimant))
        files, warm, failed = await open_files()
        steps.lap("open")
        homes = {number: self._home(number, file, epochs[number]) for number, file in files.items()}
        try:
            await writing
            if not homes:
                return Started([], failed)
            steps.lap("fences")
            recovery = Recovery(
                self._node, homes, warm=warm, routes=self._routes, steps=steps, on_failed=failed.__setitem__
            )
            start = await recovery.shards(partial(write_ingress_fences, self._node, fenced))
            started = {n: home for n, home in homes.items() if n not in failed and is_owned(n, epochs[n])}
            self.shards |= started  # from now on `abandon` finds them
        finally:
            for number, home in homes.items():
                if number not in started:
                    await self._give_back(home)
        begun = self._still_here(started)
        try:
            positions = {at: offset for at, offset in start.items() if at[1] in begun}
            failed |= await self._begin(positions, *begun.values())
            while over := [n for n, home in self._still_here(begun).items() if n in failed or home.promises.is_lost]:
                failed.setdefault(over[0], ShardLost(over[0]))
                await self.abandon(over[0])
        except BaseException:
            for number in self._still_here(begun):
                await self.abandon(number)
            raise
        steps.lap("serve")
        return Started(list(self._still_here(begun)), failed)

    def _still_here(self, homes: Mapping[int, ShardHome]) -> dict[int, ShardHome]:
        """Those that nobody has abandoned since."""
        return {number: home for number, home in homes.items() if self.shards.get(number) is home}

    async def _give_back(self, home: ShardHome) -> None:
        """What a home that does not begin has taken."""
        home.abandon()
        if self._consumers.get(home.number) is home.egress:
            del self._consumers[home.number]
        with contextlib.suppress(BusError):
            await home.catch_up.stop()
        with contextlib.suppress(BusError):
            await home.promises.end()
        home.spool.close()

    async def _begin(self, start: dict[tuple[str, int], int], *homes: ShardHome) -> dict[int, GatewayError]:
        """Their state is restored: records come, from `start` on. Returns those that fail, and why. Raises
        BusError."""
        for home in homes:
            home.begin()
            home.feeds.begin()
        finished = failures_of({home.number: home.relinquish_finished() for home in homes})
        failed: dict[int, GatewayError] = (await together(self._node.bus.assign(start), finished))[1]
        if self.moved_clients is not None:
            going_on = {home.number: self.moved_clients.go_on(home) for home in homes if home.number not in failed}
            failed |= await failures_of(going_on)
        self._node.ready.flush()
        return failed

    async def hand_over(self, number: int, to: str = "", then: Callable[[], None] = lambda: None) -> None:
        """Ends a shard here, so that another home can start it; others go on. Its clients are disconnected (0x9D), but
        for those whose connections can be passed to the gateway `to`. Runs `then` as soon as the other home may start
        it; what is left of it here ends afterwards. Raises ShardLost."""
        home = self.shards[number]
        leaving = self.moved_clients.leaving(home, to) if to and self.moved_clients is not None else None
        try:
            unassigned = self._node.bus.unassign([(self._node.topics.egress, number)])
            held = [] if leaving is None else [leaving.hold()]
            await together(unassigned, self.regular.note_end_of_ingress(home), *held)
            self._consumers.pop(number, None)
            await home.freeze(leaving)
            while not self._ways.are_idle(number):  # what it has said must precede what the next home says
                await home.writer.durable(home.writer.barrier)
            home.promises.lose()
            then()
        except BaseException:
            await self.abandon(number)  # clients that were held would wait for it
            raise
        self._node.unspooled.note(number, 0, 0)
        if self.shards.pop(number, None) is not None:
            home.spool.close()
        await home.promises.end()

    def abandon(self, number: int) -> Coroutine[Any, Any, None]:
        """Another home has the shard: the one here sends and writes nothing more from now on, and its clients'
        connections end. What is returned waits until nothing is left of it; it is to be awaited."""
        home = self.shards.pop(number, None)
        self._consumers.pop(number, None)
        if home is not None:
            home.abandon()
        return self._abandoned(number, home)

    async def _abandoned(self, number: int, home: ShardHome | None) -> None:
        if home is None:
            return
        try:
            with contextlib.suppress(BusError):  # nobody takes what is still read
                await self._node.bus.unassign([(self._node.topics.egress, number)])
            await home.abandoned()
        except BusError as error:
            log.warning("a shard that was lost is still read", shard=number, reason=str(error))
        finally:
            self._node.unspooled.note(number, 0, 0)
            home.spool.close()

    async def stop(self) -> None:
        """Stops the timers and makes a last checkpoint; connections are gone already. What is being worked on comes to
        its end; wills whose delay is not over stay in the session log. Raises SpoolError if there is no checkpoint.
        """
        for home in self.shards.values():
            home.timers.cancel_all()
        self._node.stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._presence.heartbeat("disconnected")
        await asyncio.gather(*(home.checkpoint(at_once=True) for home in self.shards.values()))
        for home in self.shards.values():
            if not home.spool.outage.is_writing:
                raise SpoolError(home.spool.outage.reason)

    @property
    def states(self) -> list[Shard]:
        """Of all shards."""
        return [home.state for home in self.shards.values()]

    @property
    def routes(self) -> int:
        """Routes that are open, those that linger included."""
        return sum(len(home.routes) for home in self.shards.values())

    @property
    def spool_size(self) -> SpoolSize:
        """Of all spools."""
        sizes = [home.spool.size for home in self.shards.values()]
        return SpoolSize(sum(size.rows for size in sizes), sum(size.file_bytes for size in sizes))

    @property
    def spool_fault(self) -> str:
        """Why a spool cannot be written or read, "" if all can."""
        return next((reason for home in self.shards.values() if (reason := home.spool.outage.reason)), "")

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that Kafka has not acknowledged yet: of clients' messages, and of message presence's events."""
        return self._node.publishes.bytes_in_flight + self._node.message_presence.in_flight_bytes

    @property
    def sessions(self) -> int:
        """How many there are, connected or not; share groups do not count."""
        return sum(len(home.sessions) - len(home.shares.groups) for home in self.shards.values())

    def home_of(self, client: str) -> ShardHome:
        """The home of a client's shard. Raises NotAdmitted if another gateway has it."""
        home = self._find(client)
        if home is None:
            raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "another gateway has the client's shard")
        return home

    def has_shard_of(self, client: str) -> bool:
        """Whether this gateway has the client's shard."""
        return self._find(client) is not None

    def _find(self, client: str) -> ShardHome | None:
        return self.shards.get(shard_of(client, self._node.settings.kafka.shards))

    def session(self, client: str) -> Session | None:
        """The client's session here, connected or not."""
        home = self._find(client)
        return None if home is None else home.sessions.get(client)

    async def attach(self, arrival: Arrival, link: Link) -> Attached:
        """See :meth:`ShardHome.attach`."""
        return await self.home_of(arrival.client).attach(arrival, link)

    def has_capacity(self, client: str) -> bool:
        """Whether a client has a session, or there may be one more; "" for a client that is to be given a name."""
        if client and self.session(client) is not None:
            return True
        arriving = sum(len(home.lock) for home in self.shards.values())
        return self.sessions + arriving < self._node.settings.gateway.limits.sessions

    def publisher(self, client: str, link: Link, rules: ClientRules) -> Publisher:
        """See :meth:`ShardHome.publisher`. Without the client's shard too: nothing of such a publish is its home's."""
        home = self._find(client)
        if home is not None:
            return home.publisher(client, link, rules)
        return Publisher(self._node, self._visiting, set(), client, None, link, rules, flags=HTTP_FLAG)

    def bundle_publisher(self, originator: str, link: Link, rules: ClientRules) -> Publisher:
        """Publishes what an originator's bundles bring, whoever has its shard; `link` is answered."""
        return Publisher(self._node, self._visiting, set(), originator, None, link, rules)

    def rules_changed(self) -> None:
        """See :meth:`ShardHome.rules_changed`."""
        for home in self.shards.values():
            home.rules_changed()

    async def kick(self, client: str, *, end_session: bool = False) -> Kicked | None:
        """See :meth:`ShardHome.kick`."""
        return await self.home_of(client).kick(client, end_session=end_session)

    def flush(self) -> None:
        """All packets of one read are handed over: deliver what they made possible, to whichever shard's sessions."""
        self._node.ready.flush()

    def _shares_of(self, shard: int, epoch: int) -> Shares | None:
        """Those of a shard that is here in `epoch` or a later one."""
        home = self.shards.get(shard)
        return None if home is None or home.spool.epoch < epoch else home.shares

    def _instructed_to(self, partition: int) -> int:
        return max((home.state.order.instructed_to(partition) for home in self.shards.values()), default=0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ShardLost):
            self._node.on_fatal(error)  # type: ignore[arg-type]
