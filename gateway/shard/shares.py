"""Shared subscriptions in one shard (MQTT 5.0, 4.8.2; R6): its groups, and its sessions as members of any groups."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, cast

from gateway.shard.conversation_keeper import ConversationKeeper
from gateway.shard.delivery import Deliverer
from gateway.shard.group_members import GroupMembers
from gateway.shard.group_requests import GroupRequests
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.memberships import Memberships
from gateway.shard.messages import GROUP_MARK, Delivery, Message, Outcome
from gateway.shard.node import Node
from gateway.shard.route_start import RouteStart
from gateway.shard.session import Session
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.share_dispatcher import ShareDispatcher
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_groups import ShareGroups
from gateway.shard.share_messages import (
    Announced,
    Assign,
    Forgotten,
    Join,
    Joined,
    Leave,
    Left,
    Reachable,
    ShareMessage,
    Started,
)
from gateway.shard.share_senders import ShareSenders
from schemas.identity import shard_of


class _Waiting(NamedTuple):
    message: ShareMessage
    is_unconfirmed: bool


class Shares:
    """`groups` are those of the shard, `dispatcher` has what they assign; `members` are the shard's sessions as
    members, `requests` what these ask of groups. `senders` says whose messages count.

    `post` sends a message to another shard, or this one, to a home in an epoch or a later one; `spawn` starts a
    coroutine whose failure is fatal.
    """

    dispatcher: ShareDispatcher
    members: Memberships
    requests: GroupRequests

    def __init__(
        self,
        node: Node,
        shard: Shard,
        routes: RouteStart,
        post: Callable[[int, int, ShareMessage], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._node = node
        self._shard = shard
        self._post_to = post
        self._spawn = spawn
        self._routes = routes
        self._has_ended = False
        self._waiting: dict[int, deque[_Waiting]] = {}
        """What is to be posted, by shard: first what has to be confirmed."""
        self._shards = node.settings.kafka.shards
        self.senders = ShareSenders(self._shards)
        self.groups = ShareGroups(shard, routes, node.numbers, node.settings.gateway.limits.share_in_flight, node.clock)

    def connect(
        self,
        deliverer: Deliverer,
        writer: SessionLogWriter,
        spool: ShardSpool,
        cover: Callable[[], Awaitable[None]],
        notify: Callable[[Message, str], None],
    ) -> None:
        """Before anything comes: what delivers in the shard; `cover`, which returns once a checkpoint has what waits by
        now; and `notify` as in :class:`ConversationKeeper`."""
        node = self._node
        self.dispatcher = ShareDispatcher(
            self._shard,
            self.groups,
            deliverer,
            writer,
            lambda: spool.committed_row,
            lambda: spool.epoch,
            self._shards,
            self._post,
            ConversationKeeper(writer, node.settings.gateway.shares, self.groups.clock, node.counts, notify),
        )
        self._group_members = GroupMembers(
            self._shard, self.groups, self.dispatcher, self._routes, writer, self._post, cover, self._spawn
        )
        own = self._shard.number, self._shard.sessions, self.shard_of, self._post, node.ready
        self.members = Memberships(*own, deliverer.pump, self._post_confirmed)
        self._confirmed = writer.confirmed
        self.requests = GroupRequests(self.members, self.shard_of, self._post, lambda: spool.epoch)

    def shard_of(self, name: str) -> int:
        """The shard in which a group is, or would be."""
        return shard_of(GROUP_MARK + name, self._shards)

    def begin(self) -> None:
        """After a recovery: tells all shards, and sends again what is open."""
        for shard in range(self._shards):
            self.senders.has_epoch(shard, self._shard.fences.highest(shard))
            self._group_members.started(shard)
        self.dispatcher.begin()
        for shard in range(self._shards):
            if shard != self._shard.number:
                self._post(shard, Started(self._shard.number))
            self._announce(shard)

    def end(self) -> None:
        """Another home has the shard: what still comes is for that one."""
        self._has_ended = True

    def receive(self, message: ShareMessage) -> None:
        """What another shard says."""
        if self._has_ended:
            return
        if isinstance(message, Assign):
            self.members.assign(message)
        elif isinstance(message, Forgotten):
            self.members.forgotten(message)
        elif isinstance(message, Joined | Left):
            self.requests.answered(message)
        elif isinstance(message, Started):
            self._group_members.started(message.shard)
            self.dispatcher.started(message.shard)
            self._announce(message.shard)
        elif isinstance(message, Join | Leave | Announced):
            self._group_members.receive(message)
        elif isinstance(message, Reachable):
            self._group_members.reachable(message)
            self.dispatcher.receive(message)
        else:
            self.dispatcher.receive(message)

    def _post(self, shard: int, message: ShareMessage) -> None:
        if waiting := self._waiting.get(shard):
            waiting.append(_Waiting(message, is_unconfirmed=False))
        else:
            self._post_to(shard, self.senders.highest(shard), message)

    def _post_confirmed(self, shard: int, message: ShareMessage) -> None:
        """What is posted to the same shard meanwhile comes behind it."""
        self._waiting.setdefault(shard, deque()).append(_Waiting(message, is_unconfirmed=True))
        self._confirmed(partial(self._is_confirmed, shard))

    def _is_confirmed(self, shard: int) -> None:
        """The first that waits, and what was posted behind it."""
        waiting = self._waiting.pop(shard)
        self._post(shard, waiting.popleft().message)
        while waiting and not waiting[0].is_unconfirmed:
            self._post(shard, waiting.popleft().message)
        if waiting:
            self._waiting[shard] = waiting

    def _announce(self, shard: int) -> None:
        """Tells the home of a shard all that it has to know of this one."""
        self.members.announce(shard)
        self.requests.ask_again(shard)
        self._post(shard, Announced(self._shard.number))

    def sweep(self) -> None:
        """What is due every second."""
        self.groups.tick()
        self.dispatcher.sweep()
        self.members.sweep()
        self._node.ready.flush()

    def pump(self, session: Session) -> None:
        """Gives what a group has to its members."""
        self.dispatcher.pump(cast(ShareGroup, session))

    def pumped(self, session: Session) -> None:
        """A session was sent what its client takes now."""
        self.members.pumped(session)

    def finished(self, delivery: Delivery, outcome: Outcome) -> None:
        """A session is finished with what a group has assigned to it."""
        self.members.finished(delivery, outcome)
