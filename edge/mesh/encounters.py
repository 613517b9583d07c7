"""How likely an agent is to meet an uplink soon, by whom it has met: the delivery predictability of PRoPHET
(RFC 6693, 2.1), with "any agent that has an uplink" as the only destination.

* it meets one that has an uplink:  P = P + (1 - P) * encounter
* it meets any other agent:         P = max(P, P_other * transitivity)
* between meetings:                 P halves every `half_life_s`

A peer says its own P, and may lie: one that says 1 attracts copies. That costs transmissions, never a message, since
the giver keeps its own copy until there is a receipt.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EncounterSettings:
    """The constants; those of RFC 6693, 3.3, where it has them, but with a half-life that spans a working day."""

    encounter: float = 0.5
    transitivity: float = 0.25
    half_life_s: float = 28_800.0


class Encounters:
    """The predictability of one agent. Times are seconds of any clock that never goes back."""

    def __init__(self, settings: EncounterSettings | None = None) -> None:
        self._settings = settings or EncounterSettings()
        self._value, self._at = 0.0, 0.0

    def predictability(self, now: float) -> float:
        """0 (no uplink in sight) … 1."""
        return float(self._value * 0.5 ** (max(0.0, now - self._at) / self._settings.half_life_s))

    def met(self, has_uplink: bool, predictability: float, now: float) -> None:
        """A contact has begun with an agent that says this of itself."""
        own = self.predictability(now)
        if has_uplink:
            own += (1 - own) * self._settings.encounter
        else:
            own = max(own, predictability * self._settings.transitivity)
        self._value, self._at = own, now
