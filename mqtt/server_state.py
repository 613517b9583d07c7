"""The states of a server-side connection and all transitions between them (h11's transition table).

AWAIT_CONNECT --RECEIVE_CONNECT--> CONNECTING --ACCEPT--> CONNECTED
each of these --CLOSE--> CLOSED
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from mqtt.transitions import follow


class State(Enum):
    """The state of a connection."""

    AWAIT_CONNECT = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    CLOSED = auto()


class Step(Enum):
    """A transition between states."""

    RECEIVE_CONNECT = auto()
    ACCEPT = auto()
    CLOSE = auto()


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = {
    (State.AWAIT_CONNECT, Step.RECEIVE_CONNECT): State.CONNECTING,
    (State.AWAIT_CONNECT, Step.CLOSE): State.CLOSED,
    (State.CONNECTING, Step.ACCEPT): State.CONNECTED,
    (State.CONNECTING, Step.CLOSE): State.CLOSED,
    (State.CONNECTED, Step.CLOSE): State.CLOSED,
}


def next_state(state: State, step: Step) -> State:
    """The state after `step`; LocalProtocolError if `step` is not possible in `state`."""
    return follow(TRANSITIONS, state, step)
