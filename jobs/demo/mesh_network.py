"""Who can reach whom in the mesh's demo: airports their gateway, while they have an uplink, and aircraft the airport at
which they stand. All of it is forwarded by the demo, so the agents need to know nothing of it."""

import asyncio
from collections.abc import Iterable, Mapping

from jobs.demo.forwarder import HOST, Forwarder, Target
from jobs.demo.mesh_agents import Uplinks
from jobs.demo.mesh_plan import Arrive, Leave, Send, Uplink, agent_of


class Network:
    """Ports are known at once; nothing can be reached before :meth:`open`."""

    def __init__(self, airports: Iterable[str], aircraft: Iterable[str]) -> None:
        self._mqtt = {place: Forwarder() for place in airports}
        self._http = {place: Forwarder() for place in self._mqtt}
        self._links = {tail: Forwarder() for tail in aircraft}
        self._gateway: dict[str, Target] = {}
        self._ports: Mapping[str, int] = {}
        self.without_uplink: set[str] = set()
        self.standing: dict[str, str] = {}
        """The airport by aircraft."""

    @property
    def uplinks(self) -> dict[str, Uplinks]:
        """By airport."""
        return {place: Uplinks(self._mqtt[place].port, self._http[place].port) for place in self._mqtt}

    @property
    def links(self) -> dict[str, int]:
        """The port that leads to where it stands, by aircraft."""
        return {tail: forwarder.port for tail, forwarder in self._links.items()}

    async def open(self, mqtt: Target, http: Target, ports: Mapping[str, int]) -> None:
        """All airports have their uplinks, to the gateway's addresses; all aircraft are in the air. `ports`: the mesh's
        ports by client id."""
        self._gateway, self._ports = {"mqtt": mqtt, "http": http}, ports
        for forwarder in self._all():
            await forwarder.open()
        for place in self._mqtt:
            self._set_uplink(place, is_up=True)

    async def close(self) -> None:
        """Cuts everything."""
        await asyncio.gather(*(forwarder.close() for forwarder in self._all()))

    def do(self, action: Arrive | Leave | Uplink | Send) -> None:
        """What changes in who can reach whom; a message changes nothing."""
        match action:
            case Arrive(aircraft, airport):
                self.standing[aircraft] = airport
                self._links[aircraft].lead_to(HOST, self._ports[agent_of(airport)])
            case Leave(aircraft, _):
                self.standing.pop(aircraft, None)
                self._links[aircraft].cut()
            case Uplink(airport, is_up):
                self._set_uplink(airport, is_up=is_up)

    def _set_uplink(self, place: str, *, is_up: bool) -> None:
        if is_up:
            self.without_uplink.discard(place)
            self._mqtt[place].lead_to(*self._gateway["mqtt"])
            self._http[place].lead_to(*self._gateway["http"])
        else:
            self.without_uplink.add(place)
            self._mqtt[place].cut()
            self._http[place].cut()

    def _all(self) -> list[Forwarder]:
        return [*self._mqtt.values(), *self._http.values(), *self._links.values()]
