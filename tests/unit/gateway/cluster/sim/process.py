"""A gateway's process: what it reads and writes of the log, its keeper of leases, and its homes."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.cluster import lease_messages as m
from gateway.cluster.lease_keeper import LeaseKeeper
from gateway.cluster.lease_table import LeaseTable
from gateway.cluster.life import Heard, Life, LinkEnded, LinkHeard, Passed, Redial, RedialResult
from gateway.cluster.timings import LeaseTimings, LifeTimings
from gateway.shard.hold import Hold
from gateway.shard.numbers import ProcessNumbers
from gateway.shard.ready import ReadySessions
from schemas.leases import Claim, Claimant, decode_lease, encode_lease
from tests.unit.gateway.cluster.sim.home import Home
from tests.unit.gateway.cluster.sim.world import LEASES_LAG_S, Cursor, Entry, TopicPartition, World

LEASES: TopicPartition = ("leases", 0)
MEMBERS: TopicPartition = ("members", 0)
TICK_S = 0.05
LEASE_TIMINGS = LeaseTimings(
    rank_s=0.02,
    fence_s=1.0,
    freeze_s=0.5,
    settle_s=1.0,
    backoff_s=0.1,
    longest_backoff_s=0.4,
    verify_again_s=0.5 * LEASES_LAG_S,
)
VERIFY_S = LEASE_TIMINGS.verify_s
WELL_S = 1.5
"""How long after its last fault nobody may take a process for lost."""


class Process:
    """One process of the gateway `name`; `site` knows all of them."""

    def __init__(self, world: World, site: Any, name: str, boot: int, zone: str) -> None:
        self.world = world
        self.site = site
        self.me = Claimant(name, boot)
        self.zone = zone
        self.is_over = False
        self.is_stopped = False
        self.is_cut = False
        self.is_held = False
        self.state = "joining"
        self.homes: dict[int, Home] = {}
        self.hold = Hold()
        self.ready = ReadySessions(self.hold)
        self.ways = site.make_ways(self)
        self.numbers = ProcessNumbers()
        self.numbers.begin(world.now, 0)
        self.stopped_at = self.well_since = 0.0
        self.epochs_at_wake: list[int] = []
        self.slow_s = self.lag_s = 0.0
        self.lagged_at = -10.0
        self.trap_topic = ""
        self.trap: Callable[[], None] | None = None
        self._held: list[Callable[[], None]] = []
        self.redialling: set[str] = set()
        self._deferred: list[Callable[[], None]] = []
        self._worked_off_at = 0.0
        self._unsent: dict[
            TopicPartition, deque[tuple[bytes, Any, int, bool, Callable[[int | None], None] | None]]
        ] = {}
        self._reports: dict[TopicPartition, deque[tuple[Callable[[int | None], None], int | None]]] = {}
        self._last_append: dict[TopicPartition, float] = {}
        self._ran_at = world.now
        self._seq = 0
        self._ticks = 0
        self._verify_to: int | None = None
        self.life = Life(self.me, LifeTimings())
        self.table = LeaseTable(site.shards)
        self.keeper = LeaseKeeper(self.me, self.table, self.life, LEASE_TIMINGS)
        self._leases_end = len(world.log[LEASES])
        self._members_end = len(world.log[MEMBERS])
        self._is_caught_up = False
        self._leases = Cursor(self, LEASES, 0, self._lease_read)
        self._members = Cursor(self, MEMBERS, max(0, self._members_end - 20), self._member_read)
        self._tick()
        self._heartbeat()

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        return not self.is_over and not self.is_stopped

    @property
    def reads_log(self) -> bool:
        return not self.is_over and not self.is_stopped and not self.is_cut

    @property
    def is_well(self) -> bool:
        """Whether others have had time to read that it lives."""
        return self.reads_log and not self.slow_s and self.world.now - self.well_since > WELL_S

    def read_delay(self) -> float:
        draw = self.world.random.random()
        if self.lag_s:
            self.lagged_at = self.world.now
            return self.lag_s * draw
        return 0.0005 + 0.004 * draw if draw < 0.95 else 0.05 * self.world.random.random()

    def enter(self, act: Callable[[], None]) -> None:
        """Something happens to the process: at once, later when it is stopped, never when it is over. A process that
        finds that it stood still first asks its keeper."""
        if self.is_over:
            return
        if self.is_stopped:
            self._deferred.append(act)
            return
        if self.world.now - self._ran_at > VERIFY_S:
            self._ran_at = self.world.now
            self.perform(self.keeper.step(m.Tick(), self.world.now))
        self._ran_at = self.world.now
        act()
        self.site.settle()

    def arrive(self, act: Callable[[], None]) -> None:
        """A packet comes, behind those that came while the process was stopped."""
        if not self.is_stopped and self.world.now < self._worked_off_at:
            self.world.at(self._worked_off_at, lambda: self.enter(act))
        else:
            self.enter(act)

    def stop(self) -> None:
        self.is_stopped, self.stopped_at = True, self.world.now

    def wake(self) -> None:
        self.is_stopped, self.well_since = False, self.world.now
        if self.world.now - self.stopped_at > VERIFY_S + TICK_S:
            self.epochs_at_wake = self.site.epochs()
        deferred, self._deferred = self._deferred, []
        delay = 0.0
        for act in deferred:  # in order, while records are sent and read in between
            delay += 0.0002 * self.world.random.random()
            self.world.after(delay, lambda act=act: self.enter(act))
        self._worked_off_at = self.world.now + delay
        self._go_on()

    def cut(self) -> None:
        self.is_cut = True

    def heal(self) -> None:
        self.is_cut, self.well_since = False, self.world.now
        self._go_on()

    def _go_on(self) -> None:
        for tp in list(self._unsent):
            self.world.soon(0.0, 0.003, lambda tp=tp: self._send(tp))
        for cursors in self.world.cursors.values():
            for cursor in cursors:
                if cursor.process is self:
                    cursor.wake()

    def crash(self) -> None:
        self.is_over = True
        for cursors in self.world.cursors.values():
            cursors[:] = [cursor for cursor in cursors if cursor.process is not self]
        for home in self.homes.values():
            home.abandon()

    # -- the log -------------------------------------------------------------------------------------------------------

    def produce(
        self,
        tp: TopicPartition,
        key: bytes,
        value: Any,
        epoch: int = 0,
        is_fence: bool = False,
        stored: Callable[[int | None], None] | None = None,
    ) -> None:
        """In order within a partition; `stored` gets the offset, or None if it is not known whether it is there."""
        self._unsent.setdefault(tp, deque()).append((key, value, epoch, is_fence, stored))
        if self.trap is not None and tp[0] == self.trap_topic:
            trap, self.trap = self.trap, None
            trap()
        self.world.soon(0.0001, 0.002, lambda: self._send(tp))

    def _send(self, tp: TopicPartition) -> None:
        queue = self._unsent.get(tp)
        if not queue or not self.reads_log:
            return
        delay = self.slow_s * self.world.random.random() if self.slow_s else 0.0
        if self.slow_s:
            self.well_since = self.world.now
        while queue:
            record = queue.popleft()
            at = max(self._last_append.get(tp, 0.0), self.world.now + delay + 0.0005 * self.world.random.random())
            is_claim = tp == LEASES and record[0].startswith(b"c") and record[4] is not None
            if is_claim and self.world.random.random() < self.site.claims_failing:
                # Its delivery is reported as failed, and it is stored all the same, some time later.
                self._acknowledge(tp, record[4], None, 0.02)
                record = (*record[:4], None)
                at += 0.5 * self.world.random.random()
            self._last_append[tp] = at
            self.world.after(at - self.world.now, lambda record=record: self._append(tp, *record))

    def _append(
        self,
        tp: TopicPartition,
        key: bytes,
        value: Any,
        epoch: int,
        is_fence: bool,
        stored: Callable[[int | None], None] | None,
    ) -> None:
        """It left the process before this: whatever becomes of the process, the record is appended."""
        offset = self.world.append(tp, key, value, epoch, is_fence)
        if stored is not None:
            self._acknowledge(tp, stored, offset, 0.0002)

    def _acknowledge(self, tp: Any, stored: Callable[[int | None], None], offset: int | None, delay: float) -> None:
        """Delivery reports come in the order of the partition."""
        self._reports.setdefault(tp, deque()).append((stored, offset))
        self.world.soon(delay, delay + 0.002, lambda: self._report(tp))

    def _report(self, tp: TopicPartition) -> None:
        if self.is_cut:
            self.world.after(0.05, lambda: self._report(tp))
        elif not self.is_over:
            self.enter(lambda: self._reported(*self._reports[tp].popleft()))

    @staticmethod
    def _reported(stored: Callable[[int | None], None], offset: int | None) -> None:
        stored(offset)

    # -- leases and members --------------------------------------------------------------------------------------------

    def _lease_read(self, entry: Entry) -> None:
        key, value = decode_lease(entry.key, entry.value)
        self.perform(self.keeper.step(m.LeaseRead(entry.offset, key, value), self.world.now))
        self.site.lease_applied(self, entry.offset, key.shard)
        self._verified()

    def _verified(self) -> None:
        if self._verify_to is not None and self._leases.position >= self._verify_to:
            self._verify_to = None
            self.perform(self.keeper.step(m.Verified(), self.world.now))

    def _member_read(self, entry: Entry) -> None:
        boot, seq, state = entry.value
        is_old = entry.offset < self._members_end
        heard = Heard(entry.key.decode(), boot, seq, state, self.site.zones[entry.key.decode()], is_old=is_old)
        self.life.step(heard, self.world.now)

    def _heartbeat(self) -> None:
        if not self.is_over:
            self.enter(self._beat)
            self.world.after(0.2, self._heartbeat)

    def _beat(self) -> None:
        if not self._unsent.get(MEMBERS):
            self._seq += 1
            self.produce(MEMBERS, self.me.name.encode(), (self.me.boot, self._seq, self.state))

    def _tick(self) -> None:
        if not self.is_over:
            if not self.is_stopped:
                self.enter(self._ticked)
            self.world.after(TICK_S, self._tick)

    def _ticked(self) -> None:
        now = self.world.now
        self._ticks += 1
        self.life.step(Passed(), now)
        if self._ticks % 4 == 0:
            for other in self.site.others(self):
                if other.runs and not self.site.are_apart(self, other):
                    self.life.step(LinkHeard(other.me.name), now)
        if not self._is_caught_up and self._leases.position >= self._leases_end:
            self._is_caught_up, self.state = True, "up"
            self.perform(self.keeper.step(m.CaughtUp(), now))
        self._verified()
        self.perform(self.keeper.step(m.Tick(), now))
        for home in list(self.homes.values()):
            home.tick()

    def link_ended(self, name: str) -> None:
        for effect in self.life.step(LinkEnded(name), self.world.now):
            self._redial(effect)

    def _redial(self, redial: Redial) -> None:
        other = self.site.latest(redial.name)
        if other is None or other.is_over:
            result, delay = "refused", 0.001
        elif self.site.are_apart(self, other):
            result, delay = "timeout", 0.3
        else:
            result, delay = "connected", 0.001
        self.redialling.add(redial.name)
        self.world.after(
            delay,
            lambda: self.enter(lambda: self._redialled(RedialResult(redial.name, result))),  # type: ignore[arg-type]
        )

    def _redialled(self, result: RedialResult) -> None:
        self.redialling.discard(result.name)
        self.life.step(result, self.world.now)
        self.perform(self.keeper.step(m.Tick(), self.world.now))

    # -- effects -------------------------------------------------------------------------------------------------------

    def perform(self, effects: list[m.LeaseEffect]) -> None:
        for effect in effects:
            match effect:
                case m.WriteLease(key, value):
                    if isinstance(value, Claim):
                        self.site.claiming(self, key.shard)
                    raw = None if value is None else encode_lease(value)
                    self.produce(LEASES, key.encode(), raw, stored=lambda offset, key=key: self._written(key, offset))
                case m.Begin(shard, epoch):
                    self.site.begun(self, shard, epoch)
                    self._end(shard)
                    self.homes[shard] = Home(self, shard, epoch)
                    self.homes[shard].begin()
                case m.Freeze(shard, epoch):
                    self.homes[shard].freeze()
                case m.End(shard, _):
                    self._end(shard)
                case m.Hold():
                    self.is_held = True
                    self.hold.hold()
                case m.Verify():
                    self._verify_to = len(self.world.log[LEASES])
                    self._leases.wake()
                case m.Resume():
                    self.is_held = False
                    held, self._held = self._held, []
                    for send in held:
                        send()
                    self.hold.resume()
                case m.Drained():
                    self.state = "gone"
                    self._beat()

    def _written(self, key: Any, offset: int | None) -> None:
        if offset is None and key.kind == "c":
            self.perform(self.keeper.step(m.WriteFailed(key.shard, key.epoch), self.world.now))

    def _end(self, shard: int) -> None:
        home = self.homes.pop(shard, None)
        if home is not None:
            home.abandon()

    def tell(self, event: m.LeaseEvent) -> None:
        self.perform(self.keeper.step(event, self.world.now))

    def send_to_client(self, home: Home, send: Callable[[], None]) -> None:
        """Whatever a home says to a client goes through here: it waits while the leases are being verified."""
        if self.is_held:
            self._held.append(lambda: self.send_to_client(home, send))
        elif not home.is_over:
            self.site.sending(self, home)
            send()
