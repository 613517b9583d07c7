"""Why a connection ended: one word in metrics (`closed_<word>`), presence events, the ledger and the log (R12).

The word is the name of the MQTT reason code in lower case (MQTT 5.0, 2.4), as sent in DISCONNECT or CONNACK. Ends that
no code distinguishes have the words below. CLOSE_REASONS has every word; docs/operators.md explains them.
"""

from collections.abc import Callable
from typing import Final

import structlog

from gateway.shard.arrivals import LOST_CONNECTING
from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.server_events import Closed

NORMAL_DISCONNECTION = "normal_disconnection"
DISCONNECT_WITH_WILL = "disconnect_with_will"
CONNECTION_LOST = "connection_lost"
CONNECT_TIMEOUT = "connect_timeout"
UNTRUSTED_PROXY = "untrusted_proxy"
PROXY_HEADER_MISSING = "proxy_header_missing"
PROXY_HEADER_MALFORMED = "proxy_header_malformed"
UNKNOWN_MEMBER = "unknown_member"
"""It came to the listener for other gateways, and is from none that is known."""
STREAM_CLOSED = "stream_closed"
"""The client of an event stream has closed it, or its time limit was reached."""
RELAYED = "relayed"
"""The client's bytes went to its home on another gateway; either side has ended that."""
MOVED = "moved"
"""Not an end: the connection goes on at another gateway of the machine, which has its socket and its session now."""
STREAM_STALLED = "stream_stalled"
"""The client of an event stream does not read."""

CLOSE_REASONS: Final = frozenset(
    {
        NORMAL_DISCONNECTION,
        DISCONNECT_WITH_WILL,
        CONNECTION_LOST,
        LOST_CONNECTING,
        CONNECT_TIMEOUT,
        UNTRUSTED_PROXY,
        PROXY_HEADER_MISSING,
        PROXY_HEADER_MALFORMED,
        UNKNOWN_MEMBER,
        STREAM_CLOSED,
        STREAM_STALLED,
        RELAYED,
        MOVED,
        *(
            reason.name.lower()
            for place in (PacketType.CONNACK, PacketType.DISCONNECT)
            for reason in ALLOWED_REASONS[place].values()
            if reason >= ReasonCode.UNSPECIFIED_ERROR
        ),
    }
)
"""Every word in use."""

ORDINARY: Final = frozenset(
    {
        NORMAL_DISCONNECTION,
        DISCONNECT_WITH_WILL,
        CONNECTION_LOST,
        "session_taken_over",
        "server_shutting_down",
        "server_moved",
        "use_another_server",
        MOVED,
    }
)
"""Ends that also happen to well-behaved clients: not logged."""

LINES_PER_S: Final = 10

log = structlog.get_logger(__name__)


def close_reason(closed: Closed, *, is_lost: bool, is_connecting: bool, has_connect: bool) -> str:
    """The word for the end `closed`.

    `is_lost`: the transport ended before either side ended the MQTT connection; `is_connecting`: it ended while CONNECT
    was handled; `has_connect`: a CONNECT had arrived.
    """
    if closed.clean:
        return NORMAL_DISCONNECTION if closed.reason == ReasonCode.NORMAL_DISCONNECTION else DISCONNECT_WITH_WILL
    if is_lost:
        return LOST_CONNECTING if is_connecting else CONNECTION_LOST
    if not has_connect and closed.reason == ReasonCode.UNSPECIFIED_ERROR:
        return CONNECT_TIMEOUT
    word = closed.reason.name.lower()
    return word if word in CLOSE_REASONS else ReasonCode.UNSPECIFIED_ERROR.name.lower()


class CloseLog:
    """Logs each end that is not ordinary, at most `LINES_PER_S` lines, then how many more there were. `now`: seconds.

    A line has no payload, topic or secret. It has client, address, word, and what was wrong in which packet.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second = -1
        self._lines = 0

    def ended(self, reason: str, closed: Closed, *, client: str, peer: str) -> None:
        if reason in ORDINARY:
            return
        second = int(self._now())
        if second != self._second:
            if self._lines > LINES_PER_S:
                log.info("more connections ended", count=self._lines - LINES_PER_S)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_PER_S:
            log.info("connection ended", client=client[:64], peer=peer, reason=reason, detail=closed.detail)
