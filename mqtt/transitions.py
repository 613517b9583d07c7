"""Transition tables: the state that follows a state and a step."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from mqtt.errors import LocalProtocolError

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)


def follow(transitions: Mapping[tuple[S, T], S], state: S, step: T) -> S:
    """The state after `step`; LocalProtocolError if `step` is not possible in `state`."""
    following = transitions.get((state, step))
    if following is None:
        raise LocalProtocolError(f"{step.name} is not possible in state {state.name}")
    return following
