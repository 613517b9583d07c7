"""What the dispatcher knows of gateways and of the owners of shards, from Kafka (R1).

Without it a dispatcher knows no gateway to which it could give a client. So before it accepts any it waits until it has
read both topics, however long Kafka is away. Later it goes on by what it knows.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

import structlog

from gateway.broker_clock import BrokerClock
from gateway.bus import Bus
from gateway.cluster.lease_messages import LeaseRead
from gateway.cluster.lease_table import LeaseTable
from gateway.dispatch.choice import Choice
from gateway.errors import BusError
from gateway.leases.follower import LeasesFollower
from gateway.leases.owners import Owners
from gateway.members.follower import MembersFollower
from gateway.members.table import MemberTable
from schemas.identity import shard_of
from schemas.leases import Claimant
from schemas.settings import Settings
from schemas.topics import Topics

AGAIN_S: Final = 1.0

_NOBODY: Final = Claimant("", 0)

log = structlog.get_logger(__name__)


async def follow(settings: Settings, bus: Bus, counts: Counter[str]) -> Choice:
    """Returns once what was on the topics is read; what comes later follows."""
    loop, gateway, topics = asyncio.get_running_loop(), settings.gateway, Topics(settings.kafka.prefix)
    members = MemberTable(gateway.cluster.members, gateway.cluster.timeout_s)
    leases = LeaseTable(settings.kafka.shards)
    owners = Owners(leases, members, _NOBODY, lambda shard: False, loop.time)

    def read(one: LeaseRead) -> None:
        leases.apply(one.offset, one.key, one.value)

    def next_owners(client: str) -> Sequence[str]:
        lease = leases[shard_of(client, len(leases))]
        return lease.standbys if lease.successor is None else (lease.successor, *lease.standbys)

    starts = [MembersFollower(bus, topics.members, members, loop.time, counts, BrokerClock(time.time)).start]
    if gateway.cluster.enabled:
        starts.append(LeasesFollower(bus, topics.leases, read, loop.time, counts).start)
    await asyncio.gather(*map(_until_read, starts))
    return Choice(owners.owner, next_owners, members, gateway.access_point, Random(), loop.time)


async def _until_read(start: Callable[[], Awaitable[None]]) -> None:
    """A start that fails has read a part at most, and follows nothing: it may be tried again."""
    while True:
        try:
            await start()
        except BusError as error:
            log.warning("no client is accepted until Kafka answers", reason=str(error))
            await asyncio.sleep(AGAIN_S)
        else:
            return
