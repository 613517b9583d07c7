"""Members of a share group in a home in memory (MQTT 5.0, 4.8.2)."""

from collections import Counter

from gateway.shard.share_group import ShareGroup
from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn

NAME = "$share/g/a/#"


async def with_members(harness: HomeHarness, *names: str, **options: int) -> tuple[Client, list[Client]]:
    """A sender, and members of the group whose route is in effect."""
    sender = await harness.client("sender")
    members = [await harness.client(name, **options) for name in names]
    for member in members:
        assert await member.subscribe(NAME) == [ReasonCode.GRANTED_QOS_2]
    await turn(LEAD_S + 5)
    return sender, members


def group_of(harness: HomeHarness) -> ShareGroup:
    [group] = [s for shard in harness.home.states for s in shard.sessions.values() if isinstance(s, ShareGroup)]
    return group


def spread(members: list[Client]) -> Counter[bytes]:
    return Counter(payload for member in members for payload in member.payloads)
