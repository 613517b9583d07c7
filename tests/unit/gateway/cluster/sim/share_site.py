"""A site with share groups: besides what :mod:`tests.unit.gateway.cluster.sim.site` checks, a message that was
acknowledged reaches one member of its group at least, at QoS 2 exactly one and once (R6, G6, Q7).

It may be lost at QoS 2 with a session that is over [MQTT-4.8.2-5], and it stays with a member that has left for good
and had it in hand. Everything else goes to others, whoever is lost.
"""

from math import inf

from gateway.cluster.lease_messages import MoveTo, StandbyReady
from gateway.shard.share_ways import ShareWays
from tests.unit.gateway.cluster.sim.home import Home
from tests.unit.gateway.cluster.sim.members import Groups, Member
from tests.unit.gateway.cluster.sim.process import Process
from tests.unit.gateway.cluster.sim.session import Message
from tests.unit.gateway.cluster.sim.share_ways import ways_of
from tests.unit.gateway.cluster.sim.shares import ShareHome
from tests.unit.gateway.cluster.sim.site import NAMES, Site
from tests.unit.gateway.cluster.sim.turns import Turns

MEMBER_FAULTS = ("away", "away", "anew", "anew", "unsubscribe")


class ShareSite(Site):
    trap_topics = ("egress", "egress", "sessions", "sessions", "ingress", "leases")

    def __init__(self, seed: int) -> None:
        self.groups = Groups(self.shards)
        self.turns = Turns()
        super().__init__(seed)
        self._members = {name: Member(self.world, self, name) for name in [*self.groups.steady, *self.groups.fickle]}
        self._senders = sorted(self.clients)
        self.clients |= self._members
        draw = self.random
        if draw.random() < 0.7:
            self.world.after(0.5, self._move_apart)
        for _ in range(draw.randint(0, 6)):
            kind = draw.choice(MEMBER_FAULTS)
            self.world.after(0.6 + 5.0 * draw.random(), lambda kind=kind: self._member_fault(kind))
        if draw.random() < 0.5:
            self.world.after(2.0 + 4.0 * draw.random(), self._members[draw.choice(self.groups.fickle)].go)

    def make_shares(self, home: Home) -> ShareHome:
        return ShareHome(home)

    def make_ways(self, process: Process) -> ShareWays:
        return ways_of(process)

    def settle(self) -> None:
        self.turns.settle()

    def close(self) -> None:
        self.turns.close()

    def clients_of(self, shard: int) -> list[str]:
        return [name for name in super().clients_of(shard) if name not in self._members]

    def _move_apart(self) -> None:
        """The shards are at two gateways, so that what they say to one another is on the log."""
        owners = [self._table[shard].owner for shard in range(self.shards)]
        owner = owners[-1]
        if owner is None or owner.name not in NAMES or owners[0] != owner:
            return
        process, to = self._processes[owner.name], self.random.choice([name for name in NAMES if name != owner.name])
        process.enter(lambda: process.tell(MoveTo(self.shards - 1, to)))
        process.enter(lambda: process.tell(StandbyReady(self.shards - 1, to)))

    def _member_fault(self, kind: str) -> None:
        draw = self.random
        fickle = self._members[draw.choice(self.groups.fickle)]
        match kind:
            case "away":
                draw.choice(list(self._members.values())).leave(self.world.now + draw.choice((0.0, 0.3, 1.5)))
            case "anew":
                fickle.begin_anew()
            case "unsubscribe":
                fickle.unsubscribe()

    def _publish(self) -> None:
        if not self.groups.have_begun or self.random.random() < 0.25:
            sender, recipient = self.random.sample(self._senders, 2)
        else:
            sender, recipient = self.random.choice(self._senders), self.random.choice(self.groups.topics)
        qos = self.random.choice((1, 2, 2))
        for _ in range(self.random.choice((1, 1, 2, 4, 8))):
            self._numbers += 1
            self.clients[sender].publish(Message(self._numbers, sender, recipient, qos, 0))

    def _lost(self) -> set[int]:
        gone = {name: member.gone_at for name, member in self._members.items() if member.gone_at < inf}
        return {number for number in super()._lost() if not self.groups.may_be_lost(number, gone)}
