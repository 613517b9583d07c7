"""The states of a contact, as one side sees it, and all transitions between them (h11's transition table).

AWAIT_HELLO --RECEIVE_HELLO--> AWAIT_RECEIPTS --RECEIVE_LAST_RECEIPTS--> AWAIT_STORE
AWAIT_STORE --RECEIPTS_STORED--> AWAIT_SUMMARY --RECEIVE_LAST_SUMMARY--> EXCHANGE
AWAIT_STORE --RECEIVE_LAST_SUMMARY--> AWAIT_STORE_ONLY --RECEIPTS_STORED--> EXCHANGE
EXCHANGE --RECEIVE_LAST_RECEIPTS--> EXCHANGE
each of these --CLOSE--> CLOSED
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from edge.mesh.errors import LocalContactError


class State(Enum):
    """What the peer is to send next, or that either may send what it likes (EXCHANGE). AWAIT_STORE: our disk is to
    store the peer's receipts before we send our summary, and the peer is to send its own; AWAIT_STORE_ONLY: that came
    already."""

    AWAIT_HELLO = auto()
    AWAIT_RECEIPTS = auto()
    AWAIT_STORE = auto()
    AWAIT_STORE_ONLY = auto()
    AWAIT_SUMMARY = auto()
    EXCHANGE = auto()
    CLOSED = auto()


class Step(Enum):
    """A transition between states. "Last": no other such frame follows at once."""

    RECEIVE_HELLO = auto()
    RECEIVE_LAST_RECEIPTS = auto()
    RECEIPTS_STORED = auto()
    RECEIVE_LAST_SUMMARY = auto()
    CLOSE = auto()


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = {
    (State.AWAIT_HELLO, Step.RECEIVE_HELLO): State.AWAIT_RECEIPTS,
    (State.AWAIT_RECEIPTS, Step.RECEIVE_LAST_RECEIPTS): State.AWAIT_STORE,
    (State.AWAIT_STORE, Step.RECEIPTS_STORED): State.AWAIT_SUMMARY,
    (State.AWAIT_STORE, Step.RECEIVE_LAST_SUMMARY): State.AWAIT_STORE_ONLY,
    (State.AWAIT_STORE_ONLY, Step.RECEIPTS_STORED): State.EXCHANGE,
    (State.AWAIT_SUMMARY, Step.RECEIVE_LAST_SUMMARY): State.EXCHANGE,
    (State.EXCHANGE, Step.RECEIVE_LAST_RECEIPTS): State.EXCHANGE,
    (State.AWAIT_HELLO, Step.CLOSE): State.CLOSED,
    (State.AWAIT_RECEIPTS, Step.CLOSE): State.CLOSED,
    (State.AWAIT_STORE, Step.CLOSE): State.CLOSED,
    (State.AWAIT_STORE_ONLY, Step.CLOSE): State.CLOSED,
    (State.AWAIT_SUMMARY, Step.CLOSE): State.CLOSED,
    (State.EXCHANGE, Step.CLOSE): State.CLOSED,
}


def next_state(state: State, step: Step) -> State:
    """The state after `step`; LocalContactError if `step` is not possible in `state`."""
    following = TRANSITIONS.get((state, step))
    if following is None:
        raise LocalContactError(f"{step.name} is not possible in state {state.name}")
    return following
