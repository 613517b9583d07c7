"""`waystation agent enrol`: asks gateways in turn, until one has given a certificate or refused."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bundles import enrolment_token
from edge.agent.settings import AgentSettings, PlatformSettings, client_tls
from edge.enrol.enrolment import enrol
from edge.enrol.errors import EnrolError, GatewayNotReached
from edge.enrol.gateway_post import GatewayPost
from edge.enrol.identity_files import Stored
from edge.uplink.settings import UplinkSettings
from schemas.visible import visible

IDENTITY: Final = "identity"
"""Where an agent's identity is, in its store directory."""
TIMEOUT_S: Final = 30.0


def enrol_device(settings: AgentSettings, token: str, urls: Sequence[str]) -> str:
    """Enrols the device of these settings; returns what to tell its user. Raises WaystationError."""
    posts = [_post(url, settings.platform) for url in urls] or gateways(settings)
    if not posts:
        for url in settings.platform.access_points:
            _post(url, settings.platform)  # raises: it is not safe for a token
        raise EnrolError(
            "which gateway? Give --gateway, or set platform.access_points or uplink.bearers in the agent's settings"
        )
    name = enrolment_token.read(token).name
    if name != settings.client_id:
        raise EnrolError(f"the token is for {visible(name)}, but this agent's client_id is {settings.client_id}")
    directory = Path(settings.store.directory) / IDENTITY
    return _summary(asyncio.run(_enrol(directory, token, posts)), directory)


def gateways(settings: AgentSettings) -> list[GatewayPost]:
    """Those that the settings name: access points, then those of the uplink's bearers, the best first. Plain http to
    other machines is left out."""
    found: dict[str, GatewayPost] = {}
    bearers = sorted(settings.uplink.bearers, key=lambda one: (one.priority, one.cost))
    places: list[tuple[str, PlatformSettings | UplinkSettings]] = []
    places += [(url, settings.platform) for url in settings.platform.access_points]
    places += [(one.url, settings.uplink) for one in bearers]
    for url, section in places:
        with contextlib.suppress(EnrolError):
            found.setdefault(url, _post(url, section))
    return list(found.values())


def _post(url: str, section: PlatformSettings | UplinkSettings) -> GatewayPost:
    name = "platform" if isinstance(section, PlatformSettings) else "uplink"
    tls = client_tls(name, section.ca_file, section.certificate_file, section.key_file)
    return GatewayPost(url, tls, TIMEOUT_S, section.server_name)


async def _enrol(directory: Path, token: str, posts: Sequence[GatewayPost]) -> Stored:
    problems = []
    for post in posts:
        try:
            return await enrol(directory, token, post)
        except GatewayNotReached as error:
            problems.append(str(error))
    raise GatewayNotReached("; ".join(problems))


def _summary(stored: Stored, directory: Path) -> str:
    certificate, now_s = stored.identity.certificate, time.time()
    until = datetime.fromtimestamp(certificate.not_after_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
    text = f"{visible(certificate.name)} is enrolled: the identity is in {directory}, valid until {until}"
    if not certificate.is_valid(now_s):
        text += "\nthis device's clock is wrong: by it the certificate is not valid now. Set the clock"
    return text
