"""Gives agents what waits for devices that are away, to carry it there (M15, M21).

A device registers by the operator's setting `gateway.mesh.carried`; an agent needs the right to subscribe to
`$bundles/<device>`. Only envelopes are given, which nobody but the device can open, and only while it is not connected.
They keep waiting: what ends them is the device's acknowledgement, or its receipt (:mod:`gateway.mesh.receipts`).

*One carrier at a time* (:mod:`gateway.mesh.carriers`), by a lease in memory, and no claim in message presence: there
the message counts as delivered since the platform has it, so a claim is not granted. It needs no more, because copies
do no harm: the device's memory ends them. A gateway that restarts forgets leases, and no message.
"""

from collections.abc import Callable, Mapping
from typing import Final

from bundles import bundle as bundle_format
from bundles.bundle import Bundle
from bundles.errors import BundleError
from gateway.errors import NotAdmitted
from gateway.host.host_server import HostServer
from gateway.mesh.carriers import Carriers
from gateway.mesh.platform import Platform
from gateway.shard.messages import Message
from gateway.shard.rules import ClientRules
from mqtt.codes import ReasonCode
from mqtt.topics import is_topic_name
from schemas.mesh_api import DEVICES_MAX, WaitingAnswer
from schemas.mesh_settings import MeshSettings

RIGHTS_TOPIC: Final = "$bundles"
_PAGES: Final = DEVICES_MAX + 100
_PAGES_OF_DEVICE: Final = 20
"""Reads of the spool for one request, each of a bounded size, and those for one device. Each device can be read once;
and where more is read, a position moves on. So a further request finds what this one has left out."""


class CarriedBundles:
    """Of one gateway."""

    def __init__(self, platform: Platform, hosts: HostServer, settings: MeshSettings) -> None:
        self._platform = platform
        self._home = hosts.home
        self._clock = hosts.clock
        self._now: Callable[[], float] = hosts.now
        self._counts = hosts.counts
        self._settings = settings
        self._carriers = Carriers(settings.carrier_s, settings.carriers)

    async def take(self, agent: str, rules: ClientRules, devices: Mapping[str, int]) -> WaitingAnswer:
        """What waits for the devices, behind the positions given. Raises SpoolError."""
        answer = _Answer(self._settings.waiting_bundles, self._settings.waiting_bytes)
        pages = _PAGES
        for device, after in devices.items():
            reason = self._refusal(agent, rules, device)
            if reason:
                answer.refused[device] = reason
            elif pages and not answer.is_full:
                try:
                    pages = await self._read(agent, device, after, answer, pages)
                except NotAdmitted as error:
                    answer.refused[device] = str(error)
            else:
                answer.more = True
        self._counts["waiting_bundles_given"] += len(answer.bundles)
        known = self._platform.known
        certificates = [one.der for name in answer.originators for one in known.of(name)]
        return WaitingAnswer(answer.bundles, certificates, answer.positions, answer.more, answer.refused)

    async def _read(self, agent: str, device: str, after: int, answer: "_Answer", pages: int) -> int:
        """Reads what waits for a device; how many pages are left."""
        waiting = self._home.home_of(device).waiting
        least = max(0, pages - _PAGES_OF_DEVICE)
        while True:
            answer.positions[device] = after
            if pages == least or answer.is_full:
                answer.more = True
                return pages
            pages -= 1
            page = await waiting.page(device, after)
            for row, message in page.messages:
                bundle = self._envelope(message, device)
                if bundle is not None:
                    if not self._carriers.begin(device, agent, self._now()):  # another was faster
                        answer.refused[device] = self._has_carrier(agent, device)
                        return pages
                    if not answer.add(bundle):
                        answer.more = True
                        return pages
                after = answer.positions[device] = row
            after = answer.positions[device] = page.read_to
            if page.is_last:
                return pages

    def _refusal(self, agent: str, rules: ClientRules, device: str) -> str:
        """Why the agent gets nothing of the device; "" if it may."""
        right = f"{RIGHTS_TOPIC}/{device}"
        if not is_topic_name(right) or rules.subscribe(right) is not ReasonCode.SUCCESS:
            return "this agent may not carry for it: that needs the right to subscribe to $bundles/<device>"
        if not any(_matches(pattern, device) for pattern in self._settings.carried):
            return "it is not among those that agents carry for: gateway.mesh.carried"
        return self._has_carrier(agent, device)

    def _has_carrier(self, agent: str, device: str) -> str:
        remaining_s = self._carriers.remaining_s(device, agent, self._now())
        return f"another agent carries for it, for {remaining_s:.0f} s more" if remaining_s else ""

    def _envelope(self, message: Message, device: str) -> Bundle | None:
        """The bundle for the device that a message brings, as old as it is now; None if it is none, or is over."""
        try:
            bundle = bundle_format.decode(message.payload)
        except BundleError:  # a message sealed to the platform: its content
            return None
        if bundle.header.recipient != device or bundle.header.message_id != message.id:
            return None
        waited_s = int(self._clock() - message.appended / 1000)
        return bundle.carried(waited_s) if bundle.carried(waited_s).remaining_s else None


class _Answer:
    """`bundles` is full with `most` of them, or `most_bytes`; a single one may be larger."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.bundles: list[bytes] = []
        self.originators: dict[str, None] = {}
        self.positions: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.more = False
        self._most, self._left = most, most_bytes

    @property
    def is_full(self) -> bool:
        return len(self.bundles) >= self._most or self._left <= 0

    def add(self, bundle: Bundle) -> bool:
        """False if it does not fit any more."""
        if self.is_full or (self.bundles and bundle.size > self._left):
            self._left = 0
            return False
        self.bundles.append(bundle_format.encode(bundle))
        self.originators[bundle.header.originator] = None
        self._left -= bundle.size
        return True


def _matches(pattern: str, device: str) -> bool:
    return device.startswith(pattern[:-1]) if pattern.endswith("*") else device == pattern
