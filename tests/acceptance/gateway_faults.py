"""What may happen to the gateways of a site, each as a function that returns once every shard has a home again."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from gateway.cluster.lease_table import Lease
from harness.gateway_site import NAMES, OWNED_S, SiteGateway
from harness.lease_watch import Change
from jobs.stack.process import wait_until
from tests.acceptance.site_soak import SiteSoak
from tests.gateway_site import SPARE, CuttableSite, SiteDispatcher
from tests.later_gateway import ARGV as LATER_GATEWAY

FROZEN_S: Final = 1.0
"""How long a process stands still, or Kafka is out of reach, after others have its shards."""
CUT_S: Final = 2.5
"""Well above the time after which silence of a member is suspect."""
MIDDLE_S: Final = 0.02
"""A move takes about this long."""


class Stage(NamedTuple):
    """`site` with load on it by `soak`."""

    site: CuttableSite
    soak: SiteSoak
    rng: random.Random

    @property
    def shard(self) -> int:
        """The one of which most is asked: that of a receiver of everything."""
        return self.site.shard_of(self.soak.present.name)

    @property
    def dispatcher(self) -> SiteDispatcher:
        assert self.site.dispatcher is not None, "this site has none"
        return self.site.dispatcher

    def owner(self) -> SiteGateway:
        return self.site.owner(self.shard)

    def others(self, *than: SiteGateway) -> list[SiteGateway]:
        return [gateway for gateway in self.site.up if gateway not in than]

    async def served(self) -> None:
        """Returns once gateways that are up serve all shards."""
        await asyncio.to_thread(self.site.all_served)
        self.soak.settled()

    async def balanced(self) -> None:
        """Returns once no shard has to move."""
        is_so = await asyncio.to_thread(wait_until, self.site.are_balanced, OWNED_S)
        assert is_so, f"gateways do not balance the shards: {self.site.watch.leases()}"
        await self.served()

    async def back(self, gateway: SiteGateway) -> None:
        """Starts it again; returns once it serves clients."""
        await asyncio.to_thread(self.site.start, gateway.gateway_name)

    async def owned_by_another(self, shard: int, than: SiteGateway) -> None:
        """Returns once the log says so, whether or not the new owner serves yet."""
        name = than.gateway_name
        is_so = await asyncio.to_thread(
            wait_until, lambda: self.site.watch.owners()[shard] not in (name, None), OWNED_S
        )
        assert is_so, f"{name} keeps shard {shard}"


Fault = Callable[[Stage], Awaitable[None]]


async def nothing(stage: Stage) -> None:
    """The soak itself: redirects and relays, no fault."""
    await stage.served()


async def owner_killed(stage: Stage) -> None:
    stage.owner().strike()
    await stage.served()


async def standby_killed(stage: Stage) -> None:
    stage.site.standby(stage.shard).strike()
    await stage.served()


async def owner_and_standby_killed(stage: Stage) -> None:
    """Two at once: nobody is left that has the shard warm."""
    owner, standby = stage.owner(), stage.site.standby(stage.shard)
    owner.strike()
    standby.strike()
    await stage.served()


async def two_killed_in_a_row(stage: Stage) -> None:
    """The successor dies while it takes over."""
    owner = stage.owner()
    owner.strike()
    await stage.owned_by_another(stage.shard, owner)
    stage.owner().strike()
    await stage.served()


async def disk_lost(stage: Stage) -> None:
    """The owner is killed, comes back without its disk, and gets its shard again."""
    owner = stage.owner()
    await asyncio.to_thread(owner.kill)
    await stage.served()
    owner.lose_disk()
    await stage.back(owner)
    if stage.owner() is not owner:
        await asyncio.to_thread(stage.site.moved, stage.shard, owner.gateway_name)
    await stage.served()


async def owner_stands_still(stage: Stage) -> None:
    """It wakes as a zombie: it does not know yet that it has lost its shards, and has publishes in its Kafka client."""
    owner = stage.owner()
    stage.soak.late_copies = True
    owner.stand_still()
    stage.soak.drop_clients_of(owner)
    await stage.served()
    await asyncio.sleep(FROZEN_S)
    owner.wake()
    await asyncio.sleep(FROZEN_S)
    await stage.served()


async def two_stand_still(stage: Stage) -> None:
    """The owner, and the gateway of other clients: one is left."""
    owner = stage.owner()
    other = stage.rng.choice(stage.others(owner))
    stage.soak.late_copies = True
    for gateway in (owner, other):
        gateway.stand_still()
    stage.soak.drop_clients_of(owner, other)
    await stage.served()
    await asyncio.sleep(FROZEN_S)
    for gateway in (owner, other):
        gateway.wake()
    await stage.served()


async def owner_cut_from_kafka(stage: Stage) -> None:
    """Its clients publish to it until they notice; what it has queued reaches Kafka when the network is back."""
    owner = stage.owner()
    stage.soak.late_copies = True
    with stage.site.kafka_away(owner):
        await stage.owned_by_another(stage.shard, owner)
        stage.soak.drop_clients_of(owner)
        owner.is_up = False  # of no use to clients
        await stage.served()
        await asyncio.sleep(FROZEN_S)
    owner.is_up = True
    await stage.served()


async def standby_cut_from_kafka(stage: Stage) -> None:
    """The shard stays where it is."""
    await stage.balanced()
    standby, owner = stage.site.standby(stage.shard), stage.owner()
    stage.soak.late_copies = True
    with stage.site.kafka_away(standby):
        await asyncio.sleep(CUT_S)
        stage.soak.drop_clients_of(standby)
        standby.is_up = False
        await stage.served()
        assert stage.owner() is owner
    standby.is_up = True
    await stage.served()


async def gateways_cut_from_one_another(stage: Stage) -> None:
    """Losing a link is not death: both write to `members`, so nobody claims, neither back nor forth (tbmq#181,
    emqx#14248)."""
    site, owner = stage.site, stage.owner()
    standby = site.standby(stage.shard)
    before, began = site.watch.leases(), time.monotonic()
    with site.cut_between(owner, standby):
        await asyncio.sleep(CUT_S)
    site.blip()
    await asyncio.sleep(FROZEN_S)
    assert not (taken := taken_from_owners(before, site.watch.since(began))), f"claimed though its owner lives: {taken}"
    await stage.served()


def taken_from_owners(before: Sequence[Lease], changes: Sequence[Change]) -> list[Change]:
    """Changes by which a shard became another's without a release of its owner's."""
    leases, taken = {lease.shard: lease for lease in before}, []
    for change in changes:
        was, now = leases[change.lease.shard].owner, change.lease.owner
        if was is not None and now is not None and now != was:
            taken.append(change)
        leases[change.lease.shard] = change.lease
    return taken


async def successor_killed_in_a_move(stage: Stage) -> None:
    """The owner has given the shard up for a gateway that dies."""
    successor = stage.site.standby(stage.shard)
    status, answer = await asyncio.to_thread(stage.site.move, stage.shard, successor.gateway_name)
    assert status < 300, f"the move was refused: {status} {answer}"
    await asyncio.sleep(stage.rng.uniform(0, 2 * MIDDLE_S))
    successor.strike()
    await stage.served()


async def shards_moved(stage: Stage) -> None:
    """An operator moves each shard of a gateway to another one, while all work."""
    owner = stage.owner()
    for shard, name in enumerate(stage.site.watch.owners()):
        if name == owner.gateway_name:
            to = stage.rng.choice(stage.others(owner))
            await asyncio.to_thread(stage.site.moved, shard, to.gateway_name)
    await stage.served()


async def one_added_one_removed(stage: Stage) -> None:
    owner, spare = stage.owner(), stage.site.gateways[SPARE]
    await asyncio.to_thread(stage.site.start, SPARE)
    status = await asyncio.to_thread(owner.leave)
    assert status == 0, f"{owner.gateway_name} ended with {status}"
    await stage.served()
    assert spare.is_up


async def all_replaced(stage: Stage) -> None:
    """One after the other ends in order and is started again; each time all shards are served."""
    for name in NAMES:
        await replaced(stage, stage.site.gateways[name])
    await stage.served()


async def replaced(stage: Stage, gateway: SiteGateway) -> None:
    """It ends in order, and is started again once all shards are served."""
    status = await asyncio.to_thread(gateway.leave)
    assert status == 0, f"{gateway.gateway_name} ended with {status}"
    await stage.served()
    await stage.back(gateway)
    await asyncio.to_thread(stage.site.all_have_standbys)


async def updated(stage: Stage) -> None:
    """A rolling update to the next release, and while both are there, a gateway of either release is killed."""
    first, *others = (stage.site.gateways[name] for name in NAMES)
    for gateway in (first, *others):
        gateway.argv = [*LATER_GATEWAY]
        await replaced(stage, gateway)
        if gateway is first:
            for killed in (first, stage.rng.choice(others)):
                await asyncio.to_thread(killed.kill)
                await stage.served()
                await stage.back(killed)
                await asyncio.to_thread(stage.site.all_have_standbys)
    await stage.served()


async def dispatcher_killed(stage: Stage) -> None:
    """Clients that are connected notice nothing; those that come are refused until it is back, or come to gateways.
    Then it dies together with an owner, and shards move while it is away."""
    dispatcher = stage.dispatcher
    for is_owner_killed in (False, True):
        dispatcher.kill()
        if is_owner_killed:
            stage.owner().strike()
        await asyncio.sleep(FROZEN_S)
        await asyncio.to_thread(dispatcher.start)
        await stage.served()


async def dispatcher_replaced(stage: Stage) -> None:
    """Another one gets its listening sockets, while clients come and shards move with their connections."""
    await asyncio.to_thread(stage.dispatcher.start)
    await shards_moved(stage)
    await asyncio.to_thread(stage.dispatcher.start)
    await stage.served()


async def restarted_alone(stage: Stage) -> None:
    """One gateway, without a cluster: killed, and started again."""
    gateway = stage.owner()
    await asyncio.to_thread(gateway.kill)
    await stage.back(gateway)
    stage.soak.settled()
