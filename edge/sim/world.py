"""The cores over a contact trace, in virtual time.

A link that exists in consecutive steps is one contact; it is cut when the link is gone. All links of a step exist
together: contacts with something to say are served in turn until none has, so a message may cross several links in a
step, as in the baselines. Signatures are made and checked; bytes go from core to core as they would over a socket.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles.bundle import Header, Kind, sign
from edge.mesh.contact import Contact
from edge.mesh.limits import MeshLimits
from edge.mesh.spray import SprayPolicy
from edge.sim.agent import SimAgent
from edge.sim.baselines import Progress
from edge.sim.outcome import Outcome
from edge.sim.platform import Platform, key_of
from edge.sim.scenario import Scenario
from edge.sim.trace import Link, Trace

PAYLOAD = bytes(200)
EXPIRE_EVERY_S = 3_600
PATIENCE_S = 300.0


def run(
    trace: Trace,
    scenario: Scenario,
    limits: MeshLimits,
    policy: SprayPolicy | None = None,
    patience_s: float = PATIENCE_S,
    progress: Progress = lambda share: None,
) -> Outcome:
    """What the cores come to with these settings. `patience_s`: for how long an agent with an uplink waits for message
    presence before it delivers without a claim."""
    world = World(trace, scenario, limits, policy or SprayPolicy(), patience_s)
    for number, step in enumerate(trace.steps):
        world.step(step.at, step.links)
        if number % 100 == 0:
            progress(number / len(trace.steps))
    return world.outcome()


class World:
    """All agents, the open contacts and the platform."""

    def __init__(
        self, trace: Trace, scenario: Scenario, limits: MeshLimits, policy: SprayPolicy, patience_s: float
    ) -> None:
        self._scenario, self._platform = scenario, Platform()
        self._agents = {
            node: SimAgent(
                node,
                self._platform,
                _public_keys,
                limits,
                policy,
                has_uplink=node in scenario.uplinks,
                patience_s=patience_s,
            )
            for node in trace.nodes
        }
        self._contacts: dict[Link, tuple[Contact, Contact]] = {}
        self._links: dict[str, set[Link]] = {node: set() for node in trace.nodes}  # the open ones
        self._dirty: dict[Link, None] = {}  # contacts with something to say, in order
        self._numbers: dict[str, int] = {}
        self._expired_at = 0

    def step(self, now: int, links: Iterable[Link]) -> None:
        """The links of a step come and go; then everything that can be sent is sent."""
        wanted = dict.fromkeys(links)
        for link in [link for link in self._contacts if link not in wanted]:
            self._close(link)
        if now - self._expired_at >= EXPIRE_EVERY_S:
            for agent in self._agents.values():
                agent.carrier.expire(now)
            self._expired_at = now
        self._write(now)
        for node in sorted(self._scenario.uplinks):
            if self._agents[node].deliver(now):
                self._dirty.update(dict.fromkeys(sorted(self._links[node])))
        for link in wanted:
            if link not in self._contacts:
                self._open(link, now)
        while self._dirty:
            link = next(iter(self._dirty))
            del self._dirty[link]
            self._serve(link, now)

    def outcome(self) -> Outcome:
        """What it has come to so far."""
        agents, platform = self._agents.values(), self._platform
        reasons: dict[str, int] = {}
        for agent in agents:
            for reason, count in agent.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return Outcome(
            self._scenario,
            {self._numbers[message_id]: at for message_id, at in platform.delivered_at.items()},
            sum(agent.transmissions for agent in agents),
            platform.hits,
            platform.given,
            reasons,
        )

    def _write(self, now: int) -> None:
        messages = self._scenario.messages
        while len(self._numbers) < len(messages) and messages[len(self._numbers)].at <= now:
            number = len(self._numbers)
            at, node = messages[number]
            header = Header(node, 1, number + 1, "platform", Kind.MESSAGE, at * 1000, self._scenario.lifetime_s)
            bundle = sign(header, PAYLOAD, key_of(node))
            self._numbers[bundle.message_id] = number
            self._agents[node].carrier.submit(bundle, at)
            self._dirty.update(dict.fromkeys(sorted(self._links[node])))

    def _open(self, link: Link, now: int) -> None:
        one, other = link
        self._contacts[link] = Contact(self._agents[one].carrier, now), Contact(self._agents[other].carrier, now)
        for node in link:
            self._links[node].add(link)
        self._dirty[link] = None

    def _close(self, link: Link) -> None:
        for contact in self._contacts.pop(link):
            contact.eof()
        for node in link:
            self._links[node].discard(link)
        self._dirty.pop(link, None)

    def _serve(self, link: Link, now: int) -> None:
        """Carries everything there and back until both are quiet; marks the contacts that have news for it."""
        pair = self._contacts[link]
        for contact in pair:
            contact.refresh(now)
        has_moved = True
        while has_moved:
            has_moved = False
            for end in (0, 1):
                if data := pair[end].outgoing(now):
                    has_moved = True
                    node = link[1 - end]
                    events = pair[1 - end].receive(data, now)
                    if self._agents[node].handle(events, pair[1 - end], now):
                        self._dirty.update(dict.fromkeys(sorted(self._links[node])))
            if not has_moved and link in self._dirty:
                del self._dirty[link]
                has_moved = True
                for contact in pair:
                    contact.refresh(now)


@cache
def _public_keys(node: str) -> Sequence[Ed25519PublicKey]:
    return (key_of(node).public_key(),)
