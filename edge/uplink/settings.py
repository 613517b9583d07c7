"""The uplink's settings, a section of the agent's file (M19); docs/edge.md explains every key.

Agents without an uplink read it too, so it imports no cryptography: that takes 10 MB.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from edge.client.access_point import AccessPoint
from edge.reachability import ReachabilityLimits
from edge.uplink.bearers import Bearer
from mqtt.topics import is_topic_filter, matches
from schemas.sections import NotEmpty, NotNegative, Positive, Seconds, Section

if TYPE_CHECKING:
    from bundles.bundle import Header
    from edge.uplink.carry_lane import FetchLimits
    from edge.uplink.delivery_plan import PlanLimits
    from edge.uplink.gateway_api import Limits

PROTOCOL_BYTES = 3 / 4
"""Of a request's body, what bundles may take: base64 makes them a third larger."""


class BearerSettings(Section, frozen=True):
    """One way to the platform."""

    name: NotEmpty
    url: NotEmpty
    source_address: str = ""
    interface: str = ""
    priority: Annotated[int, Meta(ge=0, le=1_000)] = 0
    cost: NotNegative = 0.0
    latency_ms: NotNegative = 0.0
    after_s: NotNegative = 0.0


class UplinkSettings(Section, frozen=True):
    """`[uplink]`, with `[[uplink.bearers]]`."""

    enabled: bool = False
    bearers: list[BearerSettings] = msgspec.field(default_factory=list)
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    urgent: list[NotEmpty] = msgspec.field(default_factory=list)
    probe_s: Seconds = 30.0
    good_to_come_up: Positive = 2
    bad_to_go_down: Positive = 3
    retry_first_s: Seconds = 1.0
    retry_most_s: Seconds = 60.0
    request_s: Seconds = 120.0
    request_bytes: Annotated[int, Meta(ge=4_096)] = 2 << 20
    answer_s: Seconds = 15.0
    answer_bytes: Annotated[int, Meta(ge=65_536)] = 16 << 20
    patience_s: NotNegative = 300.0
    claim_s: Annotated[float, Meta(ge=5)] = 60.0
    recheck_s: Annotated[float, Meta(ge=1)] = 20.0
    withheld_s: Annotated[float, Meta(ge=60)] = 900.0
    mesh_s: Annotated[float, Meta(ge=30)] = 3_600.0
    fetch: bool = False
    fetch_s: Annotated[float, Meta(ge=5)] = 60.0
    fetch_bundles: Positive = 1_000
    fetch_bytes: Positive = 16 << 20


def broken_rules(settings: UplinkSettings) -> Iterator[str]:
    """What is wrong with the section beyond types and ranges, a sentence each."""
    if settings.enabled and not settings.bearers:
        yield "uplink.enabled needs at least one [[uplink.bearers]] with a name and a url"
    repeated = [name for name, count in Counter(one.name for one in settings.bearers).items() if count > 1]
    if repeated:
        yield f"uplink.bearers: the name {repeated[0]!r} occurs twice"
    for bearer in settings.bearers:
        yield from _broken_in_bearer(bearer)
    for urgent in settings.urgent:
        if not is_topic_filter(urgent):
            yield f"uplink.urgent: {urgent!r} is neither a topic filter nor @ and a client id"
    if settings.retry_most_s < settings.retry_first_s:
        yield "uplink.retry_most_s must not be below uplink.retry_first_s"
    if settings.key_file and not settings.certificate_file:
        yield "uplink.key_file needs uplink.certificate_file"


def bearers(settings: UplinkSettings) -> list[Bearer]:
    """The bearers, as :mod:`.bearers` chooses among them."""
    return [
        Bearer(
            one.name,
            one.url,
            one.source_address,
            one.interface,
            one.priority,
            one.cost,
            one.latency_ms / 1000,
            one.after_s,
        )
        for one in settings.bearers
    ]


def reachability_limits(settings: UplinkSettings, bearer: Bearer) -> ReachabilityLimits:
    """Those of one bearer."""
    return ReachabilityLimits(
        latency_s=bearer.latency_s,
        good_to_come_up=settings.good_to_come_up,
        bad_to_go_down=settings.bad_to_go_down,
        probe_s=settings.probe_s,
        retry_first_s=settings.retry_first_s,
        retry_most_s=settings.retry_most_s,
    )


def plan_limits(settings: UplinkSettings) -> "PlanLimits":
    """Of what is done with each bundle."""
    from edge.uplink.delivery_plan import PlanLimits

    return PlanLimits(
        patience_s=settings.patience_s,
        lease_s=settings.claim_s,
        recheck_s=settings.recheck_s,
        withheld_s=settings.withheld_s,
    )


def fetch_limits(settings: UplinkSettings) -> "FetchLimits":
    """Of what is taken along for devices that are away."""
    from edge.uplink.carry_lane import FetchLimits

    fetch_s = settings.fetch_s if settings.fetch else 0.0
    return FetchLimits(fetch_s, settings.fetch_bundles, settings.fetch_bytes)


def request_limits(settings: UplinkSettings) -> "Limits":
    """Of a request."""
    from edge.uplink.gateway_api import Limits

    return Limits(settings.request_s, settings.answer_s, settings.answer_bytes)


def batch_bytes(settings: UplinkSettings) -> int:
    """How many bytes of bundles a request may have."""
    return int(settings.request_bytes * PROTOCOL_BYTES)


def urgency(settings: UplinkSettings) -> "Callable[[Header], bool]":
    """Whether a message is urgent: by its destination."""
    filters = tuple(settings.urgent)
    return lambda header: any(matches(one, header.destination) for one in filters)


def _broken_in_bearer(bearer: BearerSettings) -> Iterator[str]:
    where = f"uplink.bearers, {bearer.name!r}:"
    try:
        AccessPoint.parse(bearer.url)
    except ValueError as error:
        yield f"{where} {error}"
    if bearer.source_address:
        try:
            ipaddress.ip_address(bearer.source_address.partition("%")[0])
        except ValueError:
            yield f"{where} source_address = {bearer.source_address!r} is not an IP address"
    if len(bearer.interface.encode()) > 15 or "\0" in bearer.interface:
        yield f"{where} interface = {bearer.interface!r} is not the name of a network interface"
