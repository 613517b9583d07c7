"""Runs the keeper of leases of this gateway: feeds it what happens, and performs what it decides (G4, G6, G14, Q6-Q9).

    topic `leases` ──► follower ─┐                          ┌─► claims, releases, standbys on `leases`
    topic `members` ─► heard ────┼─► Life, LeaseKeeper ─────┼─► homes of shards begin, freeze, end
    homes, operators, time ──────┘   (gateway.cluster)      └─► hold, verify, resume

What concerns one shard is performed in order, one after the other. The end of a home is the exception: it sends and
writes nothing more from the moment when the lease is read. Shards that begin in one turn of the loop begin together, as
they then read the same topics once.

A home that cannot begin, because Kafka does not answer for example, begins in another epoch, as long as the shard is
its own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

import structlog
from msgspec import UNSET

from gateway.bus import Bus
from gateway.cluster import lease_messages as m
from gateway.cluster.kept_shard import Phase
from gateway.cluster.lease_keeper import LeaseKeeper
from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.cluster.life import Heard, Life, LifeEvent, Passed, Redial, RedialResult
from gateway.cluster.timings import LeaseTimings
from gateway.errors import BusError, ClusterError, GatewayError, Outranked, ShardLost
from gateway.leases.follower import LeasesFollower
from gateway.leases.shard_homes import ShardHomes
from gateway.leases.standby_events import StandbyEvents
from schemas.leases import Claimant, LeaseKey, LeaseValue, encode_lease
from schemas.members import Heartbeat

TICK_S = 0.05
"""Well within the shortest delay of :mod:`gateway.cluster.timings`."""

_AGAIN_S = 0.5
_FILE_AGAIN_S = 5.0
"""Until a start is tried again; longer if a file of this gateway, or its release, is to blame: another gateway claims
the shard then."""

LeaseListener = Callable[[Lease, Lease], None]
"""Gets a lease as it was before a record, and as it is."""

log = structlog.get_logger(__name__)


class Control:
    """Owns this gateway's part in the cluster. `now` gives monotonic seconds, `clock` seconds since the epoch;
    `on_fatal` ends the process; `redial` connects once to a member whose link ended. `on_drain` tells all members that
    this one drains: otherwise they would go on to balance shards towards it."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        me: Claimant,
        shards: int,
        standbys: int,
        homes: ShardHomes,
        follower: Callable[[Callable[[m.LeaseRead], None]], LeasesFollower],
        clock: Callable[[], float],
        on_fatal: Callable[[Exception], None],
        timings: LeaseTimings,
        life: Life,
        redial: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.me = me
        self.table = LeaseTable(shards)
        self.listeners: list[LeaseListener] = []
        self.on_drain: Callable[[], None] = lambda: None
        self._bus, self._topic, self._homes = bus, topic, homes
        self._follower = follower(self._read)
        self._on_fatal, self._redial = on_fatal, redial
        self._life = life
        self._standbys = StandbyEvents(me.name)
        self._timings = timings
        self._keeper = LeaseKeeper(me, self.table, life, timings, standbys, lambda: int(clock() * 1e6))
        self._loop = asyncio.get_running_loop()
        self._work: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_begin: dict[int, int] = {}
        self._alone: set[int] = set()
        self._drained = asyncio.Event()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._verifying: asyncio.Task[None] | None = None
        self._is_stopped = False

    # -- for the rest of the gateway -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reads `leases`, and takes part from then on; `members` is read already. Raises BusError."""
        await self._follower.start()
        self._step(m.CaughtUp())
        self._tick()

    def stop(self) -> None:
        """Takes no part any more. What is being performed goes on."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._homes.stopped()

    def phase(self, shard: int) -> Phase:
        """What this gateway does about a shard."""
        return self._keeper.phase(shard)

    def owned(self, shard: int) -> int:
        """The epoch in which a shard is this gateway's, 0 if it is not."""
        return self._keeper.owned(shard)

    def heard(self, name: str, record: Heartbeat, *, is_old: bool) -> None:
        """A heartbeat was read on `members`."""
        starting = () if record.starting is UNSET else record.starting
        of = Heard(name, record.boot, record.seq, record.state, record.zone, record.load, is_old, starting)
        self.about_life(of)
        if not is_old:
            owned = {shard: epoch for shard in range(len(self.table)) if (epoch := self.owned(shard))}
            for event in self._standbys.heard(name, record, owned):
                self._step(event)

    def about_life(self, event: LifeEvent) -> None:
        """Something that tells who is alive: from `members`, or from a link."""
        for effect in self._life.step(event, self._loop.time()):
            assert isinstance(effect, Redial)
            self._redial(effect.name)
        if isinstance(event, RedialResult) and event.result == "refused":  # a member is dead: its shards do not wait
            self._step(m.Due())

    def move(self, shard: int, to: str) -> None:
        """An operator wants a shard of this gateway's at the member `to`; it moves once that one is warm. Raises
        ClusterError."""
        if not 0 <= shard < len(self.table):
            raise ClusterError(f"there is no shard {shard}: the site has 0 to {len(self.table) - 1}")
        lease, phase = self.table[shard], self.phase(shard)
        if lease.owner != self.me:
            whose = "nobody has it" if lease.owner is None else f"{lease.owner.name} has it"
            raise ClusterError(f"shard {shard} is not this gateway's: {whose}")
        if phase != "serving":
            raise ClusterError(f"shard {shard} is {phase} here: try again once it is serving")
        if to == self.me.name:
            raise ClusterError(f"shard {shard} is at {to} already")
        names = [member.name for member in self._life.candidates(self._loop.time())]
        if to not in names:
            raise ClusterError(f"{to!r} is not a gateway that can own shards now; those are: {', '.join(names)}")
        self._step(m.MoveTo(shard, to))

    def superseded(self, shard: int, epoch: int, fence: int) -> None:
        """The home of a shard here has read the higher `fence` of another gateway."""
        self._spawn(self._look_for_successor(shard, epoch, fence))

    def drain(self) -> None:
        """This gateway gives up its shards, claims none any more, and no others move shards to it. It keeps a shard
        until another gateway can take it."""
        self.on_drain()
        self._step(m.Drain(stays=True))

    def leave(self) -> None:
        """As `drain`, but this gateway ends: it keeps nothing."""
        self.on_drain()
        self._step(m.Drain())

    async def drained(self) -> None:
        """Returns once no shard is left here after `drain` or `leave`."""
        await self._drained.wait()

    async def settled(self) -> None:
        """Returns once every shard has an owner, here or elsewhere, that serves."""
        while not all(self.table[shard].is_fenced for shard in range(len(self.table))):
            self._changed.clear()
            await self._changed.wait()

    # -- what happens --------------------------------------------------------------------------------------------------

    def _read(self, event: m.LeaseRead) -> None:
        shard = event.key.shard
        before = self.table[shard] if shard < len(self.table) else None
        self._step(event)
        if before is not None and before != self.table[shard]:
            self._changed.set()
            for listener in self.listeners:
                listener(before, self.table[shard])
            if self.table[shard].owner is None:  # it is released, perhaps for this gateway
                self._step(m.Due())

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.about_life(Passed())
        self._step(m.Tick())

    def _step(self, event: m.LeaseEvent) -> None:
        if not self._is_stopped:
            now = self._loop.time()
            self._perform(self._keeper.step(event, now))
            self._homes.stepped(now, self._timings.verify_s)

    # -- what it decides -----------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[m.LeaseEffect]) -> None:
        for effect in effects:
            match effect:
                case m.WriteLease(key, value):
                    self._write(key, value)
                case m.Begin(shard, epoch):
                    if not self._to_begin:
                        self._loop.call_soon(self._begin)
                    self._to_begin[shard] = epoch
                case m.Freeze(shard, epoch):
                    self._after(shard, partial(self._freeze, shard, epoch))
                case m.End(shard, _):
                    self._after(shard, partial(_wait_for, self._homes.abandon(shard)))
                case m.Follow(shard):
                    self._after(shard, partial(self._follow, shard))
                case m.Unfollow(shard):
                    self._after(shard, partial(self._homes.unfollow, shard))
                case m.Hold():
                    self._homes.hold()
                case m.Verify():  # an earlier one would answer for what it has not seen
                    if self._verifying is not None:
                        self._verifying.cancel()
                    self._verifying = self._spawn(self._verify())
                case m.Resume():
                    self._homes.resume()
                case m.MoveGivenUp(shard, to, is_lost):
                    why = "is lost" if is_lost else "does not become warm"
                    log.warning(f"shard not moved: its new gateway {why}", shard=shard, to=to)
                case m.DrainWaits():
                    log.warning("shards stay at a drained gateway: no other gateway can take them")
                case m.Drained():
                    self._drained.set()

    def _write(self, key: LeaseKey, value: LeaseValue | None) -> None:
        def done(error: Any, _record: Any) -> None:
            if error is None:
                return
            log.warning("cannot write to the topic leases", shard=key.shard, epoch=key.epoch, reason=error.str())
            if key.kind == "c" and value is not None:
                self._step(m.WriteFailed(key.shard, key.epoch))

        self._bus.produce(self._topic, 0, key.encode(), None if value is None else encode_lease(value), None, done)

    def _begin(self) -> None:
        """Those whose earlier work is over begin together, the others each by itself; so do those that have failed
        together."""
        owned, self._to_begin = self._to_begin, {}
        single = {shard: epoch for shard, epoch in owned.items() if shard in self._work or shard in self._alone}
        for shard, epoch in single.items():
            self._after(shard, partial(self._start, {shard: epoch}))
        free = {shard: epoch for shard, epoch in owned.items() if shard not in single}
        if free:
            task = self._spawn(self._start(free))
            for shard in free:
                self._note(shard, task)

    async def _start(self, owned: Mapping[int, int]) -> None:
        owned = {shard: epoch for shard, epoch in owned.items() if self._is_owned(shard, epoch)}
        if owned:
            try:
                started = await self._homes.start_shards(owned, self._is_owned)
            except GatewayError as error:  # nobody knows of which of them, so each is tried by itself
                self._alone |= owned.keys()
                await self._begin_anew(owned, error, self._pause_after(error) if len(owned) == 1 else 0.0)
            else:
                self._alone -= set(started.serving)
                for shard in started.serving:
                    self._step(m.Fenced(shard, owned[shard]))
                for shard, fault in started.failed.items():
                    self._spawn(self._begin_anew({shard: owned[shard]}, fault, self._pause_after(fault)))

    def _pause_after(self, fault: GatewayError) -> float:
        """How long a shard that could not start waits here; longer where another gateway is to claim it meanwhile."""
        if isinstance(fault, Outranked):
            self._step(m.FenceRead(fault.shard, fault.fence))
            return 0.0
        return _AGAIN_S if isinstance(fault, BusError | ShardLost) else _FILE_AGAIN_S

    async def _begin_anew(self, owned: Mapping[int, int], error: GatewayError, pause_s: float) -> None:
        """Shards that are still this gateway's need another epoch: in the one that has failed it may have written
        fences, and could not tell its own from another's."""
        log.warning("shards cannot start here", shards=sorted(owned), reason=str(error))
        await asyncio.sleep(pause_s)
        for shard, epoch in owned.items():
            self._step(m.Outranked(shard, epoch))

    def _is_owned(self, shard: int, epoch: int) -> bool:
        return self.owned(shard) == epoch and not self._is_stopped

    async def _freeze(self, shard: int, epoch: int) -> None:
        if not self._is_owned(shard, epoch):
            return
        try:
            frozen = partial(self._step, m.Frozen(shard, epoch))
            await self._homes.hand_over(shard, self._keeper.successor(shard), frozen)
        except GatewayError as error:  # the keeper claims it again after a while, unless another gateway has
            log.warning("a shard cannot be handed over", shard=shard, reason=str(error))

    async def _follow(self, shard: int) -> None:
        if self.owned(shard):
            return
        try:
            await self._homes.follow(shard)
        except GatewayError as error:  # a takeover takes longer meanwhile
            log.warning("a shard cannot be kept warm", shard=shard, reason=str(error))
            self._loop.call_later(_FILE_AGAIN_S, self._follow_again, shard)

    def _follow_again(self, shard: int) -> None:
        if self._keeper.is_followed(shard) and not self._is_stopped:
            self._after(shard, partial(self._follow, shard))

    async def _look_for_successor(self, shard: int, epoch: int, fence: int) -> None:
        """Reads the claim that belongs to a fence, if there is one."""
        while self._is_owned(shard, epoch):
            try:
                await self._follower.read_to_end()
            except BusError as error:
                log.warning("leases cannot be read", reason=str(error))
                await asyncio.sleep(_AGAIN_S)
            else:
                if self._is_owned(shard, epoch):
                    log.warning("nobody has claimed a shard of which a later epoch has begun", shard=shard, epoch=epoch)
                    self._step(m.Superseded(shard, epoch, fence))
                return

    async def _verify(self) -> None:
        while not self._is_stopped:
            try:
                await self._follower.read_to_end()
            except BusError as error:
                log.warning("leases cannot be verified", reason=str(error))
                await asyncio.sleep(_AGAIN_S)
            else:
                self._step(m.Verified())
                return

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _after(self, shard: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins once what is being done about the shard has ended."""
        earlier = self._work.get(shard)

        async def run() -> None:
            if earlier is not None:
                await asyncio.wait([earlier])
            await work()

        self._note(shard, self._spawn(run()))

    def _note(self, shard: int, task: asyncio.Task[None]) -> None:
        self._work[shard] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._work.get(shard) is task:
                del self._work[shard]

        task.add_done_callback(ended)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_fatal(error)


async def _wait_for(work: Coroutine[Any, Any, None]) -> None:
    await work
