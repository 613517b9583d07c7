"""Joining and leaving share groups, whose shard may be elsewhere: whoever asks waits for the answer (R6).

The answer to an earlier home of this shard may still be on its way. So a request's number has the home's epoch, too.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.shard.memberships import Memberships
from gateway.shard.session import Session
from gateway.shard.share_messages import Join, Joined, Leave, Left, ToGroup
from schemas.session_log import SubscriptionRecord

_COUNT_BITS: Final = 32
_EPOCHS: Final = 1 << 31
"""With the bits of the count, a request's number is a positive one of 64 bits."""


class GroupRequests:
    """`members` are the sessions of one shard as members; `post` sends a message to the shard of a group; `shard_of`
    gives that, by name; `epoch` is that of this home of the members' shard, 0 if it shares shards with none."""

    def __init__(
        self,
        members: Memberships,
        shard_of: Callable[[str], int],
        post: Callable[[int, ToGroup], None],
        epoch: Callable[[], int],
    ) -> None:
        self._members = members
        self._shard_of = shard_of
        self._post = post
        self._epoch = epoch
        self._has_stopped = False
        self._open: dict[int, tuple[Join | Leave, asyncio.Future[Joined | Left]]] = {}
        self._asked = 0

    async def join(
        self, session: Session, record: SubscriptionRecord, is_wanted: Callable[[], bool] = lambda: True
    ) -> SubscriptionRecord:
        """Makes a session a member of the group `record.filter`, or gives it new options. Returns, once it is one, the
        record with what the group is. If that is no longer wanted by then, the session has asked for something else
        since, or has ended."""
        joining = self._members.joining(session, record)
        try:
            joined = await self._ask(joining)
        except asyncio.CancelledError:
            if record.filter not in session.subscriptions:  # nobody will know of it
                self._members.forget(session, record.filter)
            raise
        assert isinstance(joined, Joined)
        if session.ended:
            self._members.forget(session, record.filter)
        elif is_wanted():
            self._members.joined(session, joining)
        return joined.record

    async def leave(self, session: Session, names: Sequence[str]) -> None:
        """A session leaves groups; what it was sent it may still acknowledge, whatever crashes."""
        leaving = [self._members.leaving(session, name) for name in names]
        if leaving:
            await asyncio.gather(*map(self._ask, leaving))

    def forget(self, session: Session, name: str) -> None:
        """The session is over, and with it its membership."""
        self._members.forget(session, name)

    def answered(self, message: Joined | Left) -> None:
        """What a group answers."""
        _, answer = self._open.get(message.request, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(message)

    def ask_again(self, shard: int) -> None:
        """The home of a shard has just started: it knows of nothing that an earlier one was asked."""
        for message, _ in self._open.values():
            if self._shard_of(message.group) == shard:
                self._post(shard, message)

    def stop(self) -> None:
        """Nobody waits for answers any more: their connections end."""
        self._has_stopped = True
        for _, answer in self._open.values():
            answer.cancel()

    async def _ask(self, message: Join | Leave) -> Joined | Left:
        """Sends a message, again if the home of the group's shard starts anew, until there is an answer."""
        request = message.request = self._next_request()
        answer: asyncio.Future[Joined | Left] = asyncio.get_running_loop().create_future()
        if self._has_stopped:
            answer.cancel()
        self._open[request] = message, answer
        try:
            self._post(self._shard_of(message.group), message)
            return await answer
        finally:
            del self._open[request]

    def _next_request(self) -> int:
        self._asked += 1
        return (self._epoch() % _EPOCHS << _COUNT_BITS) + self._asked
