"""Connections that go on when their shard moves to another gateway of the same machine (R5).

The former home stops each connection at the end of a packet, with nothing on its way to Kafka; a host passes it on,
with its state. The next home attaches it to the session, as it was read from Kafka, before any record comes: so nothing
that is sent from then on is missed. CONNECT is not repeated: the session is not resumed, nothing is sent again, and its
will stays.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.shard.in_hand import InHand
from gateway.shard.link import Link
from gateway.shard.rules import ClientRules
from gateway.shard.session import Session
from gateway.shard.session_state import SessionState, fits

if TYPE_CHECKING:  # it needs this
    from gateway.shard.shard_home import ShardHome

CLAIMS_APART = 2
"""The release of the former owner, and the claim of the next: with more, another gateway may have had the shard."""


class LeavingClients(Protocol):
    """Clients' connections of one shard that is about to move."""

    async def hold(self) -> None:
        """Nothing more is read from them, and nothing of the queue is sent; returns once no answer is due to them, or
        after a while."""
        ...

    async def leave(self) -> None:
        """Passes on those that can be; their sessions have no link any more. Others are disconnected afterwards."""
        ...


class MovedClients(Protocol):
    """What a host does for shards that move."""

    def leaving(self, home: "ShardHome", to: str) -> LeavingClients:
        """The shard's clients are to go to the gateway `to`."""
        ...

    async def arrive(self, home: "ShardHome") -> None:
        """Attaches the clients that have come for a shard. Its sessions are recovered, and nothing has come yet."""
        ...

    async def go_on(self, home: "ShardHome") -> None:
        """Records come: lets those clients go on, once all that they have in hand has come again."""
        ...


class MovedClient(NamedTuple):
    """A client whose connection has come with its shard; `link` is where it goes on. `then` is called when all that it
    has in hand has come again, if there is any."""

    client: str
    session: SessionState
    link: Link
    rules: ClientRules
    peer: str
    protocol: str
    hears_refusals: bool
    then: Callable[[], None]


def take_up(session: Session, moved: MovedClient, connection: int) -> bool:
    """Attaches a session of the log to a connection, number `connection`, that goes on here; False if the two do not
    fit together."""
    state = moved.session
    if not fits(session, state):
        return False
    in_hand = InHand(state.in_hand, session.sent_to_ms, moved.then)
    sent_to_ms = session.sent_to_ms if state.sent_to_ms is None else state.sent_to_ms
    session.go_on(in_hand, state.reserved, state.last_packet_id, sent_to_ms)
    session.retained_sent = {name: until for name, until in state.retained_sent.items() if math.isfinite(until)}
    session.moved_in(moved.link, moved.rules, moved.peer, moved.protocol, state.receive_maximum, connection)
    return True
