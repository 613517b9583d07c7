"""Which way a message took, from the logs of the agents (M18, M20). Pure.

An agent writes down `accepted` (as which bundle), `carried` (from whom) when it has a copy, `given` (to whom) when a
peer has said that it stored one, `received` (after how many links) when the message is for itself, and `delivered` (who
says so) or `acknowledged` when it has a receipt. The agent that brings a message to a gateway is the first to have the
gateway's receipt.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edge.agent.way import Step

_RECEIVED: Final = re.compile(r"from \S+, after (\d+) links?")
_BY_GATEWAY: Final = re.compile(r"says \S+ as gateway")
_BUNDLE: Final = re.compile(r"as bundle ([0-9a-f-]{32,36})\Z")
_TO_AND_FROM_PLATFORM: Final = 2
"""Of the links that the recipient counts, if it came through the platform."""
PLATFORM: Final = "platform"
"""On a way: a gateway."""


class LoggedStep(NamedTuple):
    """A step, and the agent in whose log it is."""

    agent: str
    step: Step


class Way(NamedTuple):
    """`links`: over how many links between agents it came, 0: none, its originator reached the platform itself.
    `agents`: who had it on this way, in order, from the originator on. `by_platform`: whether it went through a
    gateway."""

    links: int
    agents: tuple[str, ...]
    by_platform: bool

    @property
    def by_mesh(self) -> bool:
        return self.links > 0


def bundle_of(steps: Iterable[LoggedStep]) -> str | None:
    """The id of the bundle in which a message travels, which the ledger has, too. None if the steps do not say it."""
    return next((bundle for one in steps if (bundle := _bundle(one.step)) is not None), None)


def by_message(logs: Mapping[str, Sequence[Step]]) -> dict[str, list[LoggedStep]]:
    """All steps of each message, those of its bundle included, in order of time, from the logs by agent."""
    messages = {bundle: step.id for steps in logs.values() for step in steps if (bundle := _bundle(step)) is not None}
    found: dict[str, list[LoggedStep]] = defaultdict(list)
    for agent, steps in logs.items():
        for step in steps:
            found[messages.get(step.id, step.id)].append(LoggedStep(agent, step))
    for steps_of_one in found.values():
        steps_of_one.sort(key=lambda one: one.step.at_s)
    return dict(found)


def way_of(originator: str, recipient: str, steps: Iterable[LoggedStep]) -> Way | None:
    """The way of a message to the agent `recipient`, or, if that is empty, to the platform. None if the logs do not
    say that it arrived."""
    steps = list(steps)
    givers = {one.step.detail.removeprefix("to "): one.agent for one in reversed(steps) if one.step.event == "given"}
    from_whom = {one.agent: one.step.detail.removeprefix("from ") for one in steps if one.step.event == "carried"}
    if not recipient:
        brought = next((one.agent for one in steps if _is_gateways(one.step)), None)
        if brought is None:
            return None
        agents = _chain(originator, brought, from_whom)
        return Way(len(agents) - 1, (*agents, PLATFORM), by_platform=True)
    links = next((found for one in steps if one.agent == recipient and (found := _links(one.step)) is not None), None)
    if links is None:
        return None
    if recipient in givers:
        return Way(links, (*_chain(originator, givers[recipient], from_whom), recipient), by_platform=False)
    brought = next((one.agent for one in steps if _is_gateways(one.step)), originator)
    return Way(
        max(0, links - _TO_AND_FROM_PLATFORM),
        (*_chain(originator, brought, from_whom), PLATFORM, recipient),
        by_platform=True,
    )


def hops(ways: Iterable[Way]) -> dict[int, int]:
    """How many messages came over how many links, of those that came by the mesh."""
    return dict(sorted(Counter(way.links for way in ways if way.by_mesh).items()))


def _chain(originator: str, last: str, from_whom: Mapping[str, str]) -> list[str]:
    agents = [last]
    while agents[-1] != originator and (giver := from_whom.get(agents[-1])) and giver not in agents:
        agents.append(giver)
    return agents[::-1]


def _is_gateways(step: Step) -> bool:
    return step.event in ("acknowledged", "delivered") and _BY_GATEWAY.match(step.detail) is not None


def _bundle(step: Step) -> str | None:
    found = _BUNDLE.search(step.detail) if step.event == "accepted" else None
    return found[1] if found else None


def _links(step: Step) -> int | None:
    found = _RECEIVED.match(step.detail) if step.event == "received" else None
    return int(found[1]) if found else None
