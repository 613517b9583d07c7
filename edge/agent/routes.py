"""Which agent relays for which mail domain (M16): decided from the configuration alone."""

from collections.abc import Iterable, Mapping
from typing import Final

ANY: Final = "*"
HERE: Final = ""
"""The route of a domain for which this agent relays itself."""


def domain_of(address: str) -> str:
    """The domain of an address, in lower case."""
    return address.rpartition("@")[2].lower()


class Routes:
    """`agents`: client id by domain, `*` for all others. `own`: the domains for which this agent relays."""

    def __init__(self, agents: Mapping[str, str], own: Iterable[str]) -> None:
        self._agents = {domain.lower(): agent for domain, agent in agents.items()}
        self._own = {domain.lower() for domain in own}

    def of(self, address: str) -> str | None:
        """The client id of the agent that relays for the address, `HERE`, or None if there is no route. A domain named
        in full goes before `*`."""
        domain = domain_of(address)
        if domain in self._own:
            return HERE
        if domain in self._agents:
            return self._agents[domain]
        return HERE if ANY in self._own else self._agents.get(ANY)

    def relays(self, address: str) -> bool:
        """Whether this agent relays for the address."""
        return domain_of(address) in self._own or ANY in self._own

    def grouped(self, addresses: Iterable[str]) -> dict[str | None, list[str]]:
        """The addresses by route."""
        found: dict[str | None, list[str]] = {}
        for address in addresses:
            found.setdefault(self.of(address), []).append(address)
        return found
