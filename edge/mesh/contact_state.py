"""The states of a contact, as one side sees it, and all transitions between them (h11's transition table).

AWAIT_HELLO --RECEIVE_HELLO--> AWAIT_RECEIPTS --RECEIVE_LAST_RECEIPTS--> AWAIT_SUMMARY
AWAIT_SUMMARY --RECEIVE_LAST_SUMMARY--> EXCHANGE --RECEIVE_LAST_RECEIPTS--> EXCHANGE
each of these --CLOSE--> CLOSED
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from edge.mesh.errors import LocalContactError


class State(Enum):
    """What the peer is to send next, or that either may send what it likes (EXCHANGE)."""

    AWAIT_HELLO = auto()
    AWAIT_RECEIPTS = auto()
    AWAIT_SUMMARY = auto()
    EXCHANGE = auto()
    CLOSED = auto()


class Step(Enum):
    """A transition between states. "Last": no other such frame follows at once."""

    RECEIVE_HELLO = auto()
    RECEIVE_LAST_RECEIPTS = auto()
    RECEIVE_LAST_SUMMARY = auto()
    CLOSE = auto()


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = {
    (State.AWAIT_HELLO, Step.RECEIVE_HELLO): State.AWAIT_RECEIPTS,
    (State.AWAIT_RECEIPTS, Step.RECEIVE_LAST_RECEIPTS): State.AWAIT_SUMMARY,
    (State.AWAIT_SUMMARY, Step.RECEIVE_LAST_SUMMARY): State.EXCHANGE,
    (State.EXCHANGE, Step.RECEIVE_LAST_RECEIPTS): State.EXCHANGE,
    (State.AWAIT_HELLO, Step.CLOSE): State.CLOSED,
    (State.AWAIT_RECEIPTS, Step.CLOSE): State.CLOSED,
    (State.AWAIT_SUMMARY, Step.CLOSE): State.CLOSED,
    (State.EXCHANGE, Step.CLOSE): State.CLOSED,
}


def next_state(state: State, step: Step) -> State:
    """The state after `step`; LocalContactError if `step` is not possible in `state`."""
    following = TRANSITIONS.get((state, step))
    if following is None:
        raise LocalContactError(f"{step.name} is not possible in state {state.name}")
    return following
