"""What a run has come to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from edge.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """`delivered` has for each message that reached the platform the time of the first delivery. `transmissions` are
    bundles handed from node to node, `hits` bundles that gateways took, `given` messages given to the recipient."""

    scenario: Scenario
    delivered: Mapping[int, int]
    transmissions: int = 0
    hits: int = 0
    given: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The share of messages that were delivered."""
        return len(self.delivered) / len(self.scenario.messages)

    @property
    def transmissions_each(self) -> float:
        """Transmissions for each message that was written."""
        return self.transmissions / len(self.scenario.messages)

    @property
    def hits_each(self) -> float:
        """Bundles that gateways took for each message delivered."""
        return self.hits / max(1, len(self.delivered))

    @property
    def given_each(self) -> float:
        """How often the recipient saw each message delivered."""
        return self.given / max(1, len(self.delivered))

    @property
    def delays_s(self) -> list[int]:
        """From writing to delivery, in order."""
        return sorted(at - self.scenario.messages[number].at for number, at in self.delivered.items())

    @property
    def median_s(self) -> float:
        """The median of the delays; 0 if nothing was delivered."""
        return median(self.delays_s) if self.delivered else 0.0
