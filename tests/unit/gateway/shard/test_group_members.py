"""Who belongs to share groups, as the shards of the members say it (R6, G6)."""

import asyncio
from typing import Any

import pytest

from gateway.shard.group_members import GroupMembers
from gateway.shard.share_messages import Join, Joined, Reachable, ToMember
from schemas.envelope import Incarnation
from schemas.session_log import SubscriptionRecord

GROUP = "$share/g/a"
SESSION = Incarnation(0, 1)


class Group:
    """A group that has members, and the capacity of each as `joined` and `reached` have said it last."""

    name = GROUP

    def __init__(self) -> None:
        self.capacity: dict[str, int | None] = {}

    def member(self, _client: str, _session: Incarnation) -> None: ...

    def has_members(self, _name: str) -> bool:
        return True

    def join(self, message: Join) -> "Group":
        self.capacity[message.client] = message.capacity
        return self

    def record_of(self, _group: "Group", record: SubscriptionRecord) -> SubscriptionRecord:
        return record

    def joined(self, _group: "Group") -> None: ...


def join(client: str, capacity: int | None, request: int | None = None) -> Join:
    return Join(
        GROUP, client, SESSION, 1, SubscriptionRecord(GROUP, 2, False, False, 2, None, 0, {}), capacity, request
    )


@pytest.mark.parametrize("now", [4, 0, None])
def test_what_a_member_says_later_counts_although_it_waits_for_its_turn_to_join(now: int | None) -> None:
    """Else a member whose home has changed, and whose client comes back at once, would seem away: its group would give
    it nothing until it changes again."""

    async def scenario() -> None:
        group: Any = Group()
        answers: list[ToMember] = []
        tasks: list[asyncio.Task[None]] = []
        members = GroupMembers(
            *(group, group, group, group, group),
            lambda _shard, message: answers.append(message),
            asyncio.Event().wait,  # type: ignore[arg-type]
            lambda work: tasks.append(asyncio.ensure_future(work)),
        )
        members.receive(join("a", None))
        members.receive(join("b", 2))
        members.reachable(Reachable(GROUP, "a", SESSION, now))
        await asyncio.gather(*tasks)
        assert group.capacity == {"a": now, "b": 2}
        members.reachable(Reachable(GROUP, "a", SESSION, 9))  # not for one who joins later
        members.receive(join("a", 3, request=7))
        await asyncio.gather(*tasks)
        assert group.capacity == {"a": 3, "b": 2}
        assert [answer.request for answer in answers if isinstance(answer, Joined)] == [7]

    asyncio.run(scenario())
