"""A site: gateways, clients and faults, all drawn from one seed, and what must hold of them.

Checked at every step: members agree on each shard's owner at every offset of `leases`; in an epoch a shard begins in
one process only; nothing at QoS 2 comes twice; the order of each sender's messages at one QoS (MQTT 5.0, 4.6); a
process that has stood still sends nothing of a shard that it has lost meanwhile; nobody claims a shard that is
served by a process that has been well for a while; a shard whose owner is lost is claimed soon
(:mod:`tests.unit.gateway.cluster.sim.takeovers`). At the end: what was acknowledged was
delivered, and every shard is served again, within `PROGRESS_S` of the last fault.
"""

from typing import Any

from gateway.cluster import lease_messages as m
from gateway.cluster.lease_table import Lease, LeaseTable
from schemas.leases import Claim, Claimant, LeaseKey, decode_lease, encode_lease
from tests.unit.gateway.cluster.sim.client import Client
from tests.unit.gateway.cluster.sim.home import Home
from tests.unit.gateway.cluster.sim.no_shares import NoShares
from tests.unit.gateway.cluster.sim.process import LEASES, Process
from tests.unit.gateway.cluster.sim.session import Message
from tests.unit.gateway.cluster.sim.takeovers import Takeovers
from tests.unit.gateway.cluster.sim.world import LAG_S, LEASES_LAG_S, Entry, TopicPartition, Violation, World

PROGRESS_S = 8.0
HISTORY = 50
MOST_LAG_S = 0.3
DRAINED_S = 0.7
"""A drain for longer than this is one of a member that stays."""
NAMES = ("a", "b", "c")
FAULTS = (
    *("crash", "crash", "stop", "stop", "cut", "cut", "apart", "isolate", "flap", "move", "drain"),
    *("slow", "slow", "lag", "lag", "compact"),
    *("trapped stop", "trapped stop", "trapped cut", "trapped cut", "trapped crash"),
)

WRITES = ("trapped stop", "trapped stop", "trapped cut", "stop", "slow")
SLOW = ("late", "late", "late", "stop", "cut", "slow", "lag", "trapped stop", "move")
THEMES = (FAULTS, FAULTS, WRITES, SLOW)
"""By the seed, modulo their number. Runs of `WRITES` end with a late crash, after compaction."""


class Site:
    shards = 2
    partitions = 2
    trap_topics = ("sessions", "sessions", "ingress", "leases")
    zones = {"a": "x", "b": "y", "c": "y"}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._faults = THEMES[seed % len(THEMES)]
        self.world.appended = self._appended
        self._takeovers = Takeovers(self)
        self.random = self.world.random
        self._table = LeaseTable(self.shards)
        self._owners: list[list[Any]] = []
        self._compacted_to = 0
        self._begun: dict[tuple[int, int], Claimant] = {}
        self._boots = 0
        self._processes: dict[str, Process] = {}
        self._apart: set[frozenset[str]] = set()
        self._numbers = 0
        self._faults_left = 0
        self._is_down = False
        self._away_until = 0.0
        self.claims_failing = 0.1
        self.clients = {name: Client(self.world, self, name) for name in ("p0", "q0", "p1", "q1")}
        self._loses_leases = seed % 25 == 24
        if self._loses_leases:
            self._have_history()
        for name in NAMES:
            self._start(name)
        self._sleeps = seed % 50 == 12
        if self._sleeps:  # all claim in the first epoch
            for process in self._processes.values():
                process.lag_s = 0.2

    def _have_history(self) -> None:
        """The site is not new: its epochs are high, and the last owner has been lost."""
        for shard in range(self.shards):
            key = LeaseKey("c", shard, HISTORY, Claimant("z", 1))
            self.world.append(LEASES, key.encode(), encode_lease(Claim()), 0, False)
            self.world.append(("sessions", shard), b"fence/%d" % HISTORY, key.claimant, HISTORY, True)

    # -- what the parts ask --------------------------------------------------------------------------------------------

    def shard_of(self, client: str) -> int:
        return int(client[1])

    def partition_of(self, client: str) -> int:
        return "pq".index(client[0])

    def clients_of(self, shard: int) -> list[str]:
        return [name for name in self.clients if self.shard_of(name) == shard]

    def latest(self, name: str) -> Process | None:
        return self._processes.get(name)

    def others(self, process: Process) -> list[Process]:
        return [other for other in self._processes.values() if other is not process]

    def are_apart(self, one: Process, other: Process) -> bool:
        return frozenset((one.me.name, other.me.name)) in self._apart

    def serving(self, shard: int) -> list[Home]:
        """Homes that take clients, also such as do not know that they have lost the shard."""
        found = [process.homes.get(shard) for process in self._processes.values() if not process.is_over]
        return [home for home in found if home is not None and home.is_serving]

    def make_shares(self, _home: Home) -> Any:
        """What a home has for share groups."""
        return NoShares()

    def make_ways(self, _process: Process) -> Any:
        """How what shards say to one another gets there from a process."""
        return None

    def settle(self) -> None:
        """Whoever waits for what has happened goes on."""

    def close(self) -> None:
        """The run is over."""

    def lease(self, shard: int) -> Lease:
        """What the log says of a shard."""
        return self._table[shard]

    def epochs(self) -> list[int]:
        return [self._table[shard].epoch for shard in range(self.shards)]

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _appended(self, tp: TopicPartition, entry: Entry) -> None:
        if tp == LEASES:
            self._table.apply(entry.offset, *decode_lease(entry.key, entry.value))
            self._owners.append([(self._table[s].owner, self._table[s].epoch) for s in range(self.shards)])

    def lease_applied(self, process: Process, offset: int, shard: int) -> None:
        lease = process.table[shard]
        if offset >= self._compacted_to and (lease.owner, lease.epoch) != self._owners[offset][shard]:
            raise Violation(f"at {offset} {process.me} takes {lease}, the log says {self._owners[offset][shard]}")

    def begun(self, process: Process, shard: int, epoch: int) -> None:
        other = self._begun.setdefault((shard, epoch), process.me)
        if other != process.me:
            raise Violation(f"shard {shard} begins in epoch {epoch} at {process.me} and at {other}")

    def sending(self, process_of: Process, home: Home) -> None:
        at_wake = process_of.epochs_at_wake
        if at_wake and at_wake[home.shard] > home.epoch:
            raise Violation(f"{process_of.me} woke up and serves shard {home.shard} in epoch {home.epoch}")

    def claiming(self, process: Process, shard: int) -> None:
        """Losing links, and standing still oneself, are no reason. Who reads very late, or not yet who owns the shard,
        may be wrong."""
        self._takeovers.claiming(shard)
        lease = self._table[shard]
        owner = None if lease.owner is None else self._processes.get(lease.owner.name)
        if owner is None or owner is process or process.table[shard] != lease or process.lag_s > MOST_LAG_S:
            return
        if lease.is_fenced and owner.me == lease.owner and owner.is_well and owner.state == "up":
            raise Violation(f"{process.me} claims shard {shard}, though {owner.me} is well and serves it")

    # -- faults --------------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        if self._is_down:
            self.world.after(0.1, lambda: self._start(name))
            return
        self._boots += 1
        self._processes[name] = Process(self.world, self, name, self._boots, self.zones[name])

    def _crash(self, process: Process, back_s: float) -> None:
        if process.is_over:
            return
        process.crash()
        self._takeovers.lost(process)
        for client in self.clients.values():
            if client.link is not None and client.link.home.process is process:
                link = client.link
                self.world.soon(0.0005, 0.003, lambda client=client, link=link: client.closed(link))
        self._links_end(process)
        self._until(back_s, lambda: self._start(process.me.name))

    def _links_end(self, process: Process) -> None:
        for other in self.others(process):
            tell = lambda other=other: other.enter(lambda: other.link_ended(process.me.name))  # noqa: E731
            self.world.soon(0.001, 0.005, tell)

    def _stop(self, process: Process, back_s: float) -> None:
        if process.runs:
            process.stop()
            self._takeovers.lost(process)
            self._until(back_s, lambda: process.is_stopped and process.wake())

    def _cut(self, process: Process, back_s: float) -> None:
        if not process.is_cut:
            process.cut()
            self._takeovers.lost(process)
            self._until(back_s, process.heal)

    def _part(self, one: str, other: str, back_s: float) -> None:
        pair = frozenset((one, other))
        self._apart.add(pair)
        self._until(back_s, lambda: self._apart.discard(pair))

    def _until(self, seconds: float, end: Any) -> None:
        self._faults_left += 1

        def over() -> None:
            self._faults_left -= 1
            end()

        self.world.after(seconds, over)

    def _fault(self, kind: str) -> None:
        draw = self.random
        seconds = draw.choice((0.1, 0.4, 0.65, 0.8, 1.5, 2.5)) * (0.5 + draw.random())
        shard = draw.randrange(self.shards)
        owner = self._table[shard].owner
        is_owner = owner is not None and owner.name in NAMES and draw.random() < 0.7
        name = owner.name if owner is not None and is_owner else draw.choice(NAMES)
        process = self._processes[name]
        if process.is_over:
            return
        match kind.split():
            case ["crash"]:
                self._crash(process, seconds)
            case ["stop"]:
                self._stop(process, seconds)
            case ["cut"]:
                self._cut(process, seconds)
            case ["trapped", what]:
                process.trap_topic = draw.choice(self.trap_topics[:2] if self._faults is WRITES else self.trap_topics)
                process.trap = lambda: self._trapped(process, what, seconds)
            case ["late"]:
                self._supersede_slowly(process)
            case ["apart"]:
                self._part(*draw.sample(NAMES, 2), seconds)
            case ["isolate"]:
                self._cut(process, seconds)
                for other in NAMES:
                    if other != name:
                        self._part(name, other, seconds)
            case ["flap"]:
                self._links_end(process)
            case ["move"]:
                to = draw.choice(NAMES)
                process.enter(lambda: process.tell(m.MoveTo(shard, to)))
                process.enter(lambda: process.tell(m.StandbyReady(shard, to)))
            case ["drain"]:
                process.state = "draining"
                process.enter(lambda: process.tell(m.Drain(stays=seconds > DRAINED_S)))
                self.world.after(1.0, lambda: self._crash(process, 0.3))
            case ["slow"]:
                process.slow_s = draw.choice((0.05, 0.3, 0.8))
                self._until(seconds, lambda: setattr(process, "slow_s", 0.0))
            case ["lag"]:
                process.lag_s = draw.choice((0.05, 0.3))
                self._until(seconds, lambda: setattr(process, "lag_s", 0.0))
            case ["compact"]:
                self.compact()

    def _supersede_slowly(self, process: Process) -> None:
        """The owner is cut off just long enough to be superseded, by one that writes slowly, and is late to read it."""
        draw = self.random
        for other in self.others(process):
            other.slow_s = 0.8
            self._until(2.0, lambda other=other: setattr(other, "slow_s", 0.0))
        process.lag_s = 0.2
        self._until(2.0, lambda: setattr(process, "lag_s", 0.0))
        self._cut(process, 0.65 + 0.5 * draw.random())
        for _ in range(6):
            self.world.after(1.4 * draw.random(), self._publish)

    def _sleep_through(self) -> None:
        """One that owns nothing sleeps, or reads nothing, while its shards change hands twice, and what it had read is
        compacted."""
        for process in self._processes.values():
            process.lag_s = 0.0
        owners = {owner.name for shard in range(self.shards) if (owner := self._table[shard].owner)}
        sleeper = min(set(NAMES) - owners, default="a")
        self.random.choice((self._stop, self._cut))(self._processes[sleeper], 4.0)
        for at in (0.6, 1.6):
            self.world.after(at, lambda: self._crash_owners(0.5))
        self.world.after(3.5, self.compact)

    def _trapped(self, process: Process, what: str, seconds: float) -> None:
        """In the middle of writing. In a run with a late crash a client may leave at the same moment, so that what is
        open with it stays so."""
        {"stop": self._stop, "cut": self._cut, "crash": self._crash}[what](process, seconds)
        if self._away_until > self.world.now:
            for client in self.random.sample(sorted(self.clients), 2):
                self.clients[client].leave(self._away_until)

    def compact(self) -> None:
        self.world.compact(LEASES, LEASES_LAG_S, is_early=True)
        self._compacted_to = len(self.world.log[LEASES])
        for shard in range(self.shards):
            self.world.compact(("sessions", shard), LAG_S)

    def _contest(self) -> None:
        """Everybody reads late, many claims are reported as failed, and the owners are lost."""
        self.claims_failing = 0.6
        for process in self._processes.values():
            process.lag_s = 0.4
            self._until(2.0, lambda process=process: setattr(process, "lag_s", 0.0))
        self._crash_owners(2.5)

    def _crash_owners(self, seconds: float) -> None:
        owners = {owner.name for shard in range(self.shards) if (owner := self._table[shard].owner)}
        for owner in sorted(owners & set(NAMES)):
            self._crash(self._processes[owner], seconds)

    def _lose_leases(self) -> None:
        """All gateways are down, and somebody empties the topic `leases`."""
        self._is_down = True
        for process in list(self._processes.values()):
            self._crash(process, 1.0)
        log = self.world.log[LEASES]
        self.world.after(0.5, lambda: log.__setitem__(slice(None), [None] * len(log)))
        self.world.after(0.5, self._forget_leases)

    def _forget_leases(self) -> None:
        self._is_down = False
        self._table = LeaseTable(self.shards)
        self._compacted_to = len(self.world.log[LEASES])
        self._begun.clear()

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises Violation."""
        draw, world = self.random, self.world
        last_fault = 2.0 + 4.0 * draw.random()
        for _ in range(draw.randint(2, 9)):
            kind = draw.choice(self._faults)
            world.after(0.6 + (last_fault - 0.6) * draw.random(), lambda kind=kind: self._fault(kind))
        for _ in range(draw.randint(1, 4)):
            world.after(0.6 + (last_fault + 2) * draw.random(), self.compact)
        if self._loses_leases:
            world.after(last_fault, self._lose_leases)
        if self._sleeps:
            world.after(0.9, self._sleep_through)
        if draw.random() < 0.15:
            world.after(0.6 + (last_fault - 0.6) * draw.random(), self._contest)
        for _ in range(draw.randint(10, 24)):
            world.after(0.4 + (last_fault + 1.0) * draw.random(), self._publish)
        if draw.random() < 0.25 or self._faults is WRITES:
            late = last_fault + LAG_S + 2.5
            self._away_until = late + 0.5
            world.after(late - 0.1, self.compact)
            world.after(late, lambda: self._crash_owners(0.5))
            for _ in range(6):
                world.after(late - 0.05 + 0.1 * draw.random(), self._publish)
            last_fault = late
        world.run(last_fault + 1.5)
        while self._faults_left:
            world.run(world.now + 0.25)
        for process in self._processes.values():
            process.trap = None
        deadline = world.now + PROGRESS_S
        if not world.run(deadline, self._is_done):
            self._explain()

    def _publish(self) -> None:
        sender, recipient = self.random.sample(sorted(self.clients), 2)
        qos = self.random.choice((1, 2, 2))
        for _ in range(self.random.choice((1, 1, 2, 4))):
            self._numbers += 1
            self.clients[sender].publish(Message(self._numbers, sender, recipient, qos, 0))

    def _is_done(self) -> bool:
        return all(client.is_idle for client in self.clients.values()) and not self._lost() and not self._unserved()

    def _lost(self) -> set[int]:
        acknowledged = set().union(*(client.acknowledged for client in self.clients.values()))
        return {number for number in acknowledged if not any(client.has(number) for client in self.clients.values())}

    def _unserved(self) -> list[int]:
        found = []
        for shard in range(self.shards):
            owner = self._table[shard].owner
            homes = self.serving(shard)
            if owner is None or [home.process.me for home in homes] != [owner]:
                found.append(shard)
        return found

    def _explain(self) -> None:
        if self._lost():
            raise Violation(f"acknowledged and not delivered: {sorted(self._lost())}")
        if self._unserved():
            raise Violation(f"not served: {[self._table[shard] for shard in self._unserved()]}")
        waiting = {name: client.in_flight + client.to_send for name, client in self.clients.items()}
        raise Violation(f"not acknowledged: {waiting}")
