"""What the mesh is compared with, over the same trace and scenario: no mesh, plain binary spray, and an oracle.

All links of a step exist together, and a transfer takes no time: in a step a message may cross several links. That
holds for the cores too (:mod:`edge.sim.world`).
"""

from collections.abc import Callable

from edge.sim.outcome import Outcome
from edge.sim.scenario import Scenario
from edge.sim.trace import Link, Step, Trace

Progress = Callable[[float], None]
"""Called with the share of the work that is done."""


def direct(trace: Trace, scenario: Scenario) -> Outcome:
    """Each sender waits until it meets a node with an uplink itself."""
    delivered: dict[int, int] = {}
    for number, message in enumerate(scenario.messages):
        for step in trace.steps:
            if message.at <= step.at and scenario.is_alive(number, step.at):
                partners = {node for link in step.links if message.node in link for node in link}
                if partners & scenario.uplinks:
                    delivered[number] = step.at
                    break
    return Outcome(scenario, delivered, len(delivered), len(delivered), len(delivered))


def oracle(trace: Trace, scenario: Scenario) -> Outcome:
    """The earliest arrival of each message at any node with an uplink, if every node copied to all that it meets."""
    groups = [(step.at, _components(step)) for step in trace.steps]
    delivered: dict[int, int] = {}
    for number, message in enumerate(scenario.messages):
        reached = {message.node}
        for at, components in groups:
            if at < message.at:
                continue
            if not scenario.is_alive(number, at):
                break
            for component in components:
                if not reached.isdisjoint(component):
                    reached |= component
            if not reached.isdisjoint(scenario.uplinks):
                delivered[number] = at
                break
    return Outcome(scenario, delivered)


def plain_spray(trace: Trace, scenario: Scenario, copies: int = 8) -> Outcome:
    """Binary spray and wait (Spyropoulos et al., 2005): who has n > 1 copies gives half to each node that has none;
    who meets an uplink hands over, and is done with the message. Nobody else learns of the delivery."""
    spray = _PlainSpray(scenario)
    written = 0
    for step in trace.steps:
        while written < len(scenario.messages) and scenario.messages[written].at <= step.at:
            spray.held.setdefault(scenario.messages[written].node, {})[written] = copies
            written += 1
        changed = True
        while changed:
            changed = any([spray.meet(link, step.at) for link in step.links])
    return Outcome(scenario, spray.delivered, spray.transmissions, spray.hits, len(spray.delivered))


class _PlainSpray:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.held: dict[str, dict[int, int]] = {}
        self.took: dict[str, set[int]] = {}  # what a node with an uplink has handed to the platform
        self.delivered: dict[int, int] = {}
        self.transmissions = self.hits = 0

    def meet(self, link: Link, now: int) -> bool:
        """Whether anything was handed over."""
        before = self.transmissions
        for giver, taker in (link, link[::-1]):
            for number, copies in list(self.held.get(giver, {}).items()):
                if not self._scenario.is_alive(number, now):
                    del self.held[giver][number]
                elif taker in self._scenario.uplinks:
                    self._hand_over(giver, taker, number, now)
                elif copies > 1 and number not in self.held.setdefault(taker, {}):
                    self.transmissions += 1
                    self.held[taker][number] = copies // 2
                    self.held[giver][number] = copies - copies // 2
        return self.transmissions > before

    def _hand_over(self, giver: str, taker: str, number: int, now: int) -> None:
        took = self.took.setdefault(taker, set())
        if number not in took:
            took.add(number)
            self.transmissions += 1
            self.hits += 1
            self.delivered.setdefault(number, now)
            del self.held[giver][number]


def _components(step: Step) -> list[frozenset[str]]:
    """The nodes that are connected in a step, directly or through others."""
    found: list[set[str]] = []
    for link in step.links:
        touching = [component for component in found if not component.isdisjoint(link)]
        found = [component for component in found if component.isdisjoint(link)]
        found.append(set(link).union(*touching))
    return [frozenset(component) for component in found]
