"""What sessions ask of share groups elsewhere, and which answers are for them (R6)."""

import asyncio
from typing import Any

from gateway.shard.group_requests import GroupRequests
from gateway.shard.share_messages import Join, Joined, Leave, Left, ToGroup
from schemas.envelope import Incarnation
from schemas.session_log import SubscriptionRecord

GROUP = "$share/g/a"
SESSION = Incarnation(0, 1)


class Members:
    """Of a shard; they ask, and notice nothing else."""

    def joining(self, session: Any, record: SubscriptionRecord) -> Join:
        return Join(record.filter, "c", SESSION, 0, record, 2, None)

    def leaving(self, session: Any, name: str) -> Leave:
        return Leave(name, "c", SESSION, 0, None)

    def joined(self, session: Any, joining: Join) -> None: ...

    def forget(self, session: Any, name: str) -> None: ...


class Session:
    ended = False


def requests(epoch: int, sent: list[ToGroup]) -> GroupRequests:
    members: Any = Members()
    return GroupRequests(members, lambda _: 1, lambda _, message: sent.append(message), lambda: epoch)


def record(name: str) -> SubscriptionRecord:
    return SubscriptionRecord(name, 2, False, False, 2, None, 0, {})


def test_an_answer_to_an_earlier_home_is_for_nobody() -> None:
    """G6, Q7: the group's home answers the request of a home that has lost the members' shard meanwhile."""

    async def scenario() -> None:
        sent: list[ToGroup] = []
        earlier, home, session = requests(1, sent), requests(2, sent), Session()
        leaving = asyncio.ensure_future(earlier.leave(session, [GROUP]))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        joining = asyncio.ensure_future(home.join(session, record(GROUP)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        asked, joins = sent
        assert isinstance(asked, Leave)
        assert isinstance(joins, Join)
        home.answered(Left(asked.request or 0))
        await asyncio.sleep(0)
        assert not joining.done()
        told = record(GROUP)
        home.answered(Joined(joins.request or 0, told))
        assert await joining is told
        earlier.stop()
        await asyncio.gather(leaving, return_exceptions=True)

    asyncio.run(scenario())
