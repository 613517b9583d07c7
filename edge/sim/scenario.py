"""What happens in a run: which nodes have an uplink, and who writes a message when. All of it follows from a seed.

The rule: of the nodes in the order of their names, 5 % (rounded) are drawn that have an uplink all the time. Each of
the messages is written at a step that is drawn from those of which the trace has at least another lifetime left, by a
node without an uplink that is in contact with somebody at that step. Every message goes to the platform.
"""

import random
from typing import NamedTuple

from edge.sim.errors import TraceError
from edge.sim.trace import Trace

DAY_S = 86_400


class Written(NamedTuple):
    """A message: when it is written, in seconds, and by which node. Its number is its place in the scenario."""

    at: int
    node: str


class Scenario(NamedTuple):
    """Nodes with an uplink, and messages in the order of time; `lifetime_s` is that of every message."""

    uplinks: frozenset[str]
    messages: tuple[Written, ...]
    lifetime_s: int

    def is_alive(self, number: int, now: int) -> bool:
        """Whether a message may still be delivered."""
        return now - self.messages[number].at < self.lifetime_s


def draw(trace: Trace, seed: int, messages: int = 300, uplink_share: float = 0.05, lifetime_s: int = DAY_S) -> Scenario:
    """The scenario of a seed. Raises TraceError if the trace is too short for a lifetime, or nobody could write."""
    generator = random.Random(f"{trace.name} {seed}")
    uplinks = frozenset(generator.sample(trace.nodes, max(1, round(uplink_share * len(trace.nodes)))))
    last = trace.steps[-1].at - lifetime_s
    present = [(step.at, sorted({*sum(step.links, ())} - uplinks)) for step in trace.steps if step.at <= last]
    writers = [(at, nodes) for at, nodes in present if nodes]
    if not writers:
        raise TraceError(f"trace {trace.name} is too short for messages that live {lifetime_s} s")
    drawn = []
    for _ in range(messages):
        at, nodes = generator.choice(writers)
        drawn.append(Written(at, generator.choice(nodes)))
    return Scenario(uplinks, tuple(sorted(drawn)), lifetime_s)
