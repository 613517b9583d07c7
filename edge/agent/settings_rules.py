"""The rules between the keys of the agent's settings (M19). Pure."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bundles.content import PROPERTIES_MAX
from edge.agent.mqtt import settings as mqtt_settings
from edge.client.access_point import AccessPoint
from edge.client.connect_points import parse_connect_points
from edge.client.options import HTTP_NAME
from edge.node import settings as node_settings
from edge.uplink import settings as uplink_settings
from mqtt.client_keep_alive import PING_FACTOR
from schemas.this_machine import is_loopback

if TYPE_CHECKING:
    from edge.agent.settings import AgentSettings, PlatformSettings

ENVELOPE_BYTES: Final = 65_536
"""What the largest mail leaves of `store.message_bytes` for its envelope."""
BUNDLE_BYTES: Final = 4_096
"""What the largest message with its envelope leaves of `mesh.bundle_bytes`: for the bundle's header and signature, what
sealing adds, and the encoding of the content."""
ENVELOPE_PROPERTIES: Final = 10
"""User properties of a mail's envelope beside its recipients, at most."""


def broken_rules(settings: "AgentSettings") -> Iterator[str]:
    yield from _broken_in_platform(settings.platform, settings.client_id, is_needed=not settings.mesh.enabled)
    yield from _broken_in_mesh(settings)
    yield from mqtt_settings.broken_rules(settings.mqtt, settings.store.message_bytes)
    submission, relay, folders = settings.smtp.submission, settings.smtp.relay, settings.folders
    if submission.enabled:
        if submission.message_bytes + ENVELOPE_BYTES > settings.store.message_bytes:
            yield (
                f"smtp.submission.message_bytes = {submission.message_bytes} leaves no space for the envelope: it must "
                f"be at least {ENVELOPE_BYTES} below store.message_bytes = {settings.store.message_bytes}"
            )
        if not (settings.smtp.routes or (relay.enabled and relay.domains)):
            yield 'smtp.submission needs a route: set [smtp.routes], for example "example.org" = "the-other-agent"'
        if submission.tls == "tls" and not submission.certificate_file:
            yield 'smtp.submission.tls = "tls" needs smtp.submission.certificate_file and smtp.submission.key_file'
        is_safe = submission.password_file and submission.certificate_file
        if not is_loopback(submission.host) and not is_safe:
            yield (
                f"smtp.submission.host = {submission.host!r} can be reached from other machines: set "
                "smtp.submission.password_file and smtp.submission.certificate_file, or host = '127.0.0.1'"
            )
    if relay.enabled and not relay.domains:
        yield 'smtp.relay.domains is empty: list the domains of the mail server, or "*" to relay to all'
    if relay.enabled and relay.username and not relay.password_file:
        yield "smtp.relay.username needs smtp.relay.password_file"
    if relay.retry_most_s < relay.retry_first_s:
        yield "smtp.relay.retry_most_s must not be below smtp.relay.retry_first_s"
    if folders.enabled and not (folders.outboxes or folders.inbox):
        yield "folders.enabled needs an inbox or [folders.outboxes]"
    for folder, topic in folders.outboxes.items():
        if any(character in topic for character in "+#\0") or not topic.strip("@"):
            yield f"folders.outboxes: {topic!r}, for {folder!r}, is not a topic and not @ and a client id"


def _broken_in_platform(platform: "PlatformSettings", client_id: str, *, is_needed: bool) -> Iterator[str]:
    if platform.access_points and platform.connect_points:
        yield "set either platform.access_points or platform.connect_points"
    if is_needed and not platform.is_set:
        yield (
            "set either platform.access_points or platform.connect_points, or mesh.enabled = true for an agent that "
            "has only peers"
        )
    if platform.bearer and platform.connect_points:
        yield "platform.bearer is for access points only: connect points name their bearer"
    shortest_s = math.ceil(platform.ping_timeout_s / PING_FACTOR)
    if platform.keep_alive_s < shortest_s:
        yield (
            f"platform.keep_alive_s = {platform.keep_alive_s} is too short for platform.ping_timeout_s = "
            f"{platform.ping_timeout_s:g}: the gateway would end a connection as slow as that before it gets a ping; "
            f"it must be at least {shortest_s}"
        )
    if platform.key_file and not platform.certificate_file:
        yield "platform.key_file needs platform.certificate_file"
    try:
        points = parse_connect_points(platform.connect_points)
        bearers = {point.protocol for point in points} | {platform.bearer}
        if "kafka" in bearers:
            yield "platform.connect_points: an agent has an inbox, and there is none over kafka: use mqtts:// or https://"
        if bearers & {"http", "https"} and not HTTP_NAME.fullmatch(client_id):
            yield f"client_id: over HTTP it must have 1 to 128 letters, digits and - . _ ~, not {client_id!r:.100}"
        for url in platform.access_points:
            AccessPoint.parse(url)
    except ValueError as error:
        yield f"platform: {error}"


def _broken_in_mesh(settings: "AgentSettings") -> Iterator[str]:
    mesh, uplink, store = settings.mesh, settings.uplink, settings.store
    yield from node_settings.broken_rules(mesh)
    yield from uplink_settings.broken_rules(uplink)
    if uplink.enabled and not mesh.enabled:
        yield "uplink.enabled needs mesh.enabled = true: the uplink brings bundles of the mesh to gateways"
    if uplink.enabled and uplink.fetch and not mesh.carry:
        yield "uplink.fetch needs mesh.carry = true: it takes along what is for others"
    if not mesh.enabled:
        return
    if store.message_bytes + BUNDLE_BYTES > mesh.bundle_bytes:
        yield (
            f"mesh.bundle_bytes = {mesh.bundle_bytes} is too small for messages of store.message_bytes = "
            f"{store.message_bytes}: a bundle needs {BUNDLE_BYTES} more"
        )
    for name in ("stored_bytes", "inbox_bytes"):
        if getattr(mesh, name) < mesh.bundle_bytes:
            yield f"mesh.{name} must not be below mesh.bundle_bytes = {mesh.bundle_bytes}"
    most = PROPERTIES_MAX - ENVELOPE_PROPERTIES
    if settings.smtp.submission.enabled and settings.smtp.submission.recipients > most:
        yield f"smtp.submission.recipients must be at most {most} with mesh.enabled: a bundle's envelope has no more"
    if settings.mqtt.listener.platform_subscriptions and not settings.platform.is_set:
        yield "mqtt.listener.platform_subscriptions needs platform.access_points or platform.connect_points"
