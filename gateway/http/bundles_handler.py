"""Bundles over HTTP: agents bring them, and ask whom to seal to (M7, M14, M17)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gateway.http.identity import Caller
from gateway.http.message_presence_handler import decoded
from gateway.http.problems import Problem, refusal
from gateway.mesh.admission import BundleAdmission
from gateway.mesh.platform import Platform
from gateway.policy.bucket import TokenBucket
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.mesh_api import BundlesAnswer, BundlesRequest, MeshState
from schemas.mesh_settings import MeshSettings

RIGHTS_TOPIC: Final = "$bundles"
"""Clients that may publish to `$bundles` may bring bundles, whoever wrote these."""


class Mesh:
    """What a gateway needs that takes bundles."""

    def __init__(self, platform: Platform, admission: BundleAdmission) -> None:
        self.platform, self.admission = platform, admission


class BundlesHandler:
    """Handles requests of agents. `mesh` is None if the gateway takes no bundles; `clock` is monotonic."""

    def __init__(self, mesh: Mesh | None, settings: MeshSettings, clock: Callable[[], float]) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._rate = TokenBucket(settings.bundles_per_s, settings.bundles_burst)
        self._requests = 0

    @property
    def body_bytes(self) -> int:
        """The most that a request may have."""
        return self._settings.request_bytes

    @contextmanager
    def bringing(self, caller: Caller) -> Iterator[None]:
        """Entered before the body is read. Raises Problem 403, 404, 503."""
        self._enabled()
        reason = caller.rules.publish(Publish(RIGHTS_TOPIC, b"")).reason
        if reason is not ReasonCode.SUCCESS:
            raise refusal(reason)
        if self._requests >= self._settings.requests:
            raise Problem(503, "too_many_requests_at_once", "too many requests with bundles; nothing was done")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def take(self, caller: Caller, body: bytes) -> BundlesAnswer:
        """A result for each bundle. Raises Problem 400, 413, 429."""
        admission = self._enabled().admission
        request = decoded(body, BundlesRequest)
        count, most = len(request.bundles), self._settings.request_bundles
        if count > most:
            raise Problem(413, "too_many_bundles", f"{count} bundles are more than {most}: send fewer at a time")
        now = self._clock()
        if not self._rate.has(now, count):
            raise Problem(429, "bundle_rate", "too many bundles a second; try again later")
        self._rate.take(now, count)
        await admission.learn(request.certificates)
        return BundlesAnswer(await admission.take(request.bundles, caller.peer))

    def state(self) -> MeshState:
        """Whom to seal to, and who is revoked. Raises Problem 404."""
        known = self._enabled().platform.known
        return MeshState([certificate.der for certificate in known.gateways()], known.revocations.encoded)

    def _enabled(self) -> Mesh:
        if self._mesh is None:
            raise Problem(404, "mesh_disabled", "this gateway takes no bundles: gateway.mesh.enabled is false")
        return self._mesh
