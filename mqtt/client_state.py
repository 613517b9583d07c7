"""The states of a client connection and all transitions between them (h11's transition table).

AWAIT_CONNACK --RECEIVE_CONNACK--> CONNECTED
each of these --CLOSE--> CLOSED
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from mqtt.transitions import follow


class State(Enum):
    """The state of a connection, which begins when CONNECT is sent."""

    AWAIT_CONNACK = auto()
    CONNECTED = auto()
    CLOSED = auto()


class Step(Enum):
    """A transition between states. A CONNACK that refuses is a CLOSE."""

    RECEIVE_CONNACK = auto()
    CLOSE = auto()


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = {
    (State.AWAIT_CONNACK, Step.RECEIVE_CONNACK): State.CONNECTED,
    (State.AWAIT_CONNACK, Step.CLOSE): State.CLOSED,
    (State.CONNECTED, Step.CLOSE): State.CLOSED,
}


def next_state(state: State, step: Step) -> State:
    """The state after `step`; LocalProtocolError if `step` is not possible in `state`."""
    return follow(TRANSITIONS, state, step)
