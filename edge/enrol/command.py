"""`waystation agent enrol`: asks gateways in turn, until one has given a certificate or refused."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bundles import enrolment_token
from edge.agent.settings import AgentSettings, client_tls
from edge.enrol.enrolment import enrol
from edge.enrol.errors import EnrolError, GatewayNotReached
from edge.enrol.gateway_post import GatewayPost
from edge.enrol.identity_files import Stored
from schemas.visible import visible

IDENTITY: Final = "identity"
"""Where an agent's identity is, in its store directory."""
TIMEOUT_S: Final = 30.0


def enrol_device(settings: AgentSettings, token: str, gateways: Sequence[str]) -> str:
    """Enrols the device of these settings; returns what to tell its user. Raises WaystationError."""
    urls = gateways or settings.platform.access_points
    if not urls:
        raise EnrolError("which gateway? Give --gateway, or set platform.access_points in the agent's settings")
    name = enrolment_token.read(token).name
    if name != settings.client_id:
        raise EnrolError(f"the token is for {visible(name)}, but this agent's client_id is {settings.client_id}")
    platform = settings.platform
    tls = client_tls("platform", platform.ca_file, platform.certificate_file, platform.key_file)
    posts = [GatewayPost(url, tls, TIMEOUT_S, platform.server_name) for url in urls]
    directory = Path(settings.store.directory) / IDENTITY
    return _summary(asyncio.run(_enrol(directory, token, posts)), directory)


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
