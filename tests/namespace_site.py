"""A site of gateways in a network of its own, where the kernel drops the packets between two processes (Q6, G14).

A proxy that is frozen (tests.cuttable_proxy) answers for the other end: it accepts connections and acknowledges bytes.
Here nothing comes back, as when a cable is cut: connections cannot be made, and what is sent is sent again later.

All processes of the site share the loopback interface of one namespace. Each gateway runs in a group of its own, and
the kernel marks the connections that it opens with the group's number. So a rule about a mark and the ports of a
listener is about two processes, both ways.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from harness.gateway_site import SiteGateway
from tests.gateway_site import CuttableSite, SiteBroker
from tests.namespaces import Namespace, program

FIRST_GROUP: Final = 50_000
BLIP_S: Final = 0.3
"""Several times as long as between two heartbeats of a link, at which its ends notice."""


class NamespaceSite(CuttableSite):
    """Make and use it in the namespace `network` (`Namespace.call`), and its broker too."""

    def __init__(self, network: Namespace, directory: Path, broker: SiteBroker, prefix: str, **options: Any) -> None:
        super().__init__(directory, broker, prefix, **options)
        self._network = network
        self._groups = {name: FIRST_GROUP + number for number, name in enumerate(self.gateways)}
        for name, gateway in self.gateways.items():
            gateway.argv = [str(program("setpriv")), "--regid", str(self._groups[name]), "--keep-groups", *gateway.argv]
        marks = [f"meta skgid {group} ct direction original ct mark set {group}" for group in self._groups.values()]
        self._apply(
            "table inet site {",
            "chain marks {\ntype filter hook output priority -150",
            *marks,
            "}\nchain treated {\ntype filter hook output priority 0\n}\n}",
        )

    @contextmanager
    def kafka_away(self, gateway: SiteGateway) -> Iterator[None]:
        """See :meth:`CuttableSite.kafka_away`."""
        with self._treated("drop", self._to(gateway, [self._broker.port_of(gateway.gateway_name)])):
            yield

    @contextmanager
    def cut_between(self, one: SiteGateway, other: SiteGateway) -> Iterator[None]:
        """See :meth:`CuttableSite.cut_between`."""
        with self._treated("drop", [*self._between(one, other), *self._between(other, one)]):
            yield

    def blip(self) -> None:
        """See :meth:`CuttableSite.blip`."""
        pairs = permutations(self.gateways.values(), 2)
        with self._treated("reject with tcp reset", [match for pair in pairs for match in self._between(*pair)]):
            time.sleep(BLIP_S)

    def _between(self, source: SiteGateway, target: SiteGateway) -> list[str]:
        return self._to(source, target.for_gateways.values())

    def _to(self, source: SiteGateway, ports: Iterable[int]) -> list[str]:
        """What matches the packets, both ways, of connections that a gateway opens to any of these ports."""
        mark, at = self._groups[source.gateway_name], ", ".join(map(str, ports))
        return [f"ct mark {mark} tcp {end} {{ {at} }}" for end in ("dport", "sport")]

    @contextmanager
    def _treated(self, verdict: str, packets: Iterable[str]) -> Iterator[None]:
        self._apply(*(f"add rule inet site treated {match} {verdict}" for match in packets))
        try:
            yield
        finally:
            self._apply("flush chain inet site treated")

    def _apply(self, *lines: str) -> None:
        self._network.run("nft", "-f", "-", text="".join(f"{line}\n" for line in lines))
