"""Clients as a home gets to know them: who comes, and how it goes."""

from typing import Final, NamedTuple

from gateway.shard.rules import EVERYTHING, ClientRules
from schemas.session_log import WillRecord

LOST_CONNECTING = "connection_lost_while_connecting"
"""Why a connection ended that never got its CONNACK: lost, but its will was never accepted."""

REPLY_INBOX: Final = "http-request"
"""The protocol of a session that only gets the replies to one HTTP request. Nobody asks whether it is online, so
presence does not report it (R6)."""

REPLY_CLIENTS: Final = "http-request/"
"""What the client ids of such sessions begin with. No client may have one, or it could take over the inbox of a request
whose Response Topic it knows."""


class Arrival(NamedTuple):
    """A client that connects; `expiry_s`: of its session; `hears_refusals`: its protocol can refuse a PUBLISH (5.0)."""

    client: str
    clean_start: bool
    expiry_s: int
    will: WillRecord | None
    receive_maximum: int
    peer: str
    protocol: str
    rules: ClientRules = EVERYTHING
    hears_refusals: bool = True


class Kicked(NamedTuple):
    """What an operator's `kick` has ended."""

    connection: bool
    session: bool
