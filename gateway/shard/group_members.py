"""Who belongs to the share groups of one shard, as the shards of the members say it (MQTT 5.0, 4.8.2; R6).

A member counts once its record in the session log is durable; `Joined` says so. Members whose shard has not named them
since its home started, or this one's, are away; when that shard has announced those it has, the others are over.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from gateway.shard.keyed_lock import KeyedLock
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.route_start import RouteStart
from gateway.shard.shard import Shard
from gateway.shard.share_dispatcher import ShareDispatcher
from gateway.shard.share_group import filter_of
from gateway.shard.share_groups import ShareGroups
from gateway.shard.share_messages import Announced, Join, Joined, Leave, Left, Reachable, ToMember
from schemas.envelope import Incarnation
from schemas.session_log import MemberRecord


class GroupMembers:
    """Takes members into groups and out of them. `post` sends a message to the shard of a member; `cover` returns once
    a checkpoint has what waits by now; `spawn` starts a coroutine whose failure is fatal."""

    def __init__(
        self,
        shard: Shard,
        groups: ShareGroups,
        dispatcher: ShareDispatcher,
        routes: RouteStart,
        writer: SessionLogWriter,
        post: Callable[[int, ToMember], None],
        cover: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._shard = shard
        self._groups = groups
        self._dispatcher = dispatcher
        self._routes = routes
        self._writer = writer
        self._post = post
        self._cover = cover
        self._spawn = spawn
        self._lock = KeyedLock()
        self._unconfirmed: dict[int, dict[tuple[str, str, Incarnation], None]] = {}
        """Members that their shard has not named since a start, by shard: group, client, session."""
        self._joining: dict[tuple[str, str, Incarnation], Join] = {}
        """The last of each member that waits for its turn."""

    def receive(self, message: Join | Leave | Announced) -> None:
        """What the shard of a member says."""
        if isinstance(message, Join):
            member = message.group, message.client, message.session
            self._unconfirmed.get(message.shard, {}).pop(member, None)
            self._joining[member] = message
            self._spawn(self._in_turn(message.group, partial(self._join, message)))
        elif isinstance(message, Leave):
            self._spawn(self._in_turn(message.group, partial(self._leave, message)))
        else:
            for name, client, session in self._unconfirmed.pop(message.shard, ()):
                over = Leave(name, client, session, message.shard, None)
                self._spawn(self._in_turn(name, partial(self._leave, over)))

    def reachable(self, message: Reachable) -> None:
        """What it says is newer than what a member has said that waits for its turn to join."""
        joining = self._joining.get((message.group, message.client, message.session))
        if joining is not None:
            joining.capacity = message.capacity

    def started(self, shard: int) -> None:
        """The home of a shard has started, or this one's: its members are away until it has named them."""
        unconfirmed = self._unconfirmed[shard] = dict[tuple[str, str, Incarnation], None]()
        for group in self._groups:
            for member in [m for m in group.members.values() if m.shard == shard]:
                unconfirmed[group.name, member.client, member.session] = None
                self._dispatcher.away(group, member)

    async def _in_turn(self, group: str, work: Callable[[], Awaitable[None]]) -> None:
        """One after the other for a group: who leaves must not overtake itself joining."""
        async with self._lock.of(group):
            await work()

    async def _join(self, message: Join) -> None:
        if not self._groups.has_members(message.group):
            self._groups.begin(message.group, *await self._routes.use(filter_of(message.group)))
        if self._joining.get(key := (message.group, message.client, message.session)) is message:
            del self._joining[key]
        group = self._groups.join(message)
        record = self._groups.record_of(group, message.record)
        member = group.member(message.client, message.session)
        if member is not None and not member.is_logged:
            logged = MemberRecord(*message.session, record)
            await self._writer.durable(partial(self._writer.member, group, message.client, logged))
            group.note_logged(member)
        self._dispatcher.joined(group)
        if message.request is not None:
            self._post(message.shard, Joined(message.request, record))

    async def _leave(self, message: Leave) -> None:
        """What the member was sent at QoS 2 nothing brings again but its group: so that is in the spool first."""
        group = self._groups.find(message.group)
        if group is not None and group.leave(message.client, message.session):
            self._writer.member(group, message.client, None)
            self._dispatcher.left(group)
            numbers = group.in_hand_unspooled(message.client)
            if numbers and message.request is not None:
                self._shard.spool_through(max(numbers))
                await self._cover()
        if message.request is not None:
            self._post(message.shard, Left(message.request))
