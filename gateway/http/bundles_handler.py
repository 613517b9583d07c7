"""Bundles over HTTP: agents bring them, ask whom to seal to, take along what waits for devices that are away, and bring
these devices' receipts (M7, M14, M15, M17, M21)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bundles.errors import CertificateError
from gateway.errors import SpoolError
from gateway.host.host_server import HostServer
from gateway.http.identity import Caller
from gateway.http.message_presence_handler import decoded
from gateway.http.problems import Problem, bad_request, refusal
from gateway.mesh.admission import BundleAdmission
from gateway.mesh.carried import RIGHTS_TOPIC, CarriedBundles
from gateway.mesh.certificate_topic import CertificateTopic
from gateway.mesh.deliveries import DeliveryReports
from gateway.mesh.platform import Platform
from gateway.mesh.receipts import ReceiptAdmission
from gateway.policy.bucket import TokenBucket
from gateway.slices import in_slices
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.http_settings import REQUEST_BYTES
from schemas.mesh_api import (
    DEVICES_MAX,
    BundlesAnswer,
    BundlesRequest,
    CertificatesAnswer,
    CertificatesRequest,
    MeshState,
    ReceiptsAnswer,
    ReceiptsRequest,
    WaitingAnswer,
    WaitingRequest,
)
from schemas.mesh_settings import MeshSettings
from schemas.settings import GatewaySettings

WAITING_BYTES: Final = DEVICES_MAX * 1_100
RECEIPTS_BYTES: Final = REQUEST_BYTES
CERTIFICATES_BYTES: Final = REQUEST_BYTES
"""The most that a request may have."""


class Mesh:
    """What a gateway needs that takes bundles. Clients that may publish to `$bundles` may bring bundles and receipts,
    whoever wrote these; those that may subscribe to `$bundles/<device>` may carry for the device."""

    def __init__(
        self, platform: Platform, certificates: CertificateTopic, hosts: HostServer, settings: GatewaySettings
    ) -> None:
        self.platform, self._certificates, self._counts = platform, certificates, hosts.counts
        reports = DeliveryReports(hosts.home.message_presence, lambda: platform.name, hosts.clock, hosts.counts)
        self.admission = BundleAdmission(platform, hosts, settings, reports)
        self.carried = CarriedBundles(platform, hosts, settings.mesh)
        self.receipts = ReceiptAdmission(platform, hosts, reports)

    async def learn(self, certificates: Sequence[bytes]) -> None:
        """Takes certificates of originators and signers. One that is not the authority's is passed over: it is what
        needs the certificate that is refused."""
        async for der in in_slices(certificates):
            try:
                self._certificates.learn(der)
            except CertificateError:
                self._counts["mesh_certificates_refused"] += 1


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
        with self._counted():
            yield

    @contextmanager
    def asking(self, caller: Caller) -> Iterator[None]:
        """Entered before the body of a question for bundles is read. Raises Problem 400, 404, 503."""
        self._enabled()
        if not caller.is_known:
            raise bad_request("nameless_client", "an agent needs a name: send X-Client-Id or credentials")
        with self._counted():
            yield

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._requests >= self._settings.requests:
            raise Problem(503, "too_many_requests_at_once", "too many requests with bundles; nothing was done")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def take(self, caller: Caller, body: bytes) -> BundlesAnswer:
        """A result for each bundle. Raises Problem 400, 413, 429."""
        mesh = self._enabled()
        request = decoded(body, BundlesRequest)
        count, most = len(request.bundles), self._settings.request_bundles
        if count > most:
            raise Problem(413, "too_many_bundles", f"{count} bundles are more than {most}: send fewer at a time")
        self._spend(count)
        await mesh.learn(request.certificates)
        return BundlesAnswer(await mesh.admission.take(request.bundles, caller.peer))

    async def give_waiting(self, caller: Caller, body: bytes) -> WaitingAnswer:
        """Bundles for devices that are away. Raises Problem 400, 503."""
        carried = self._enabled().carried
        request = decoded(body, WaitingRequest)
        try:
            return await carried.take(caller.client, caller.rules, request.devices)
        except SpoolError as error:
            raise Problem(503, "spool_unreadable", "what waits cannot be read now; try again later") from error

    async def take_receipts(self, caller: Caller, body: bytes) -> ReceiptsAnswer:
        """A result for each receipt. Raises Problem 400, 429."""
        mesh = self._enabled()
        request = decoded(body, ReceiptsRequest)
        self._spend(len(request.receipts))
        await mesh.learn(request.certificates)
        return ReceiptsAnswer(await mesh.receipts.take(request.receipts))

    async def exchange_certificates(self, body: bytes) -> CertificatesAnswer:
        """Keeps the caller's certificates, and gives those that it asks for. Raises Problem 400, 429."""
        mesh = self._enabled()
        request = decoded(body, CertificatesRequest)
        self._spend(len(request.certificates) + len(request.names))
        await mesh.learn(request.certificates)
        known = mesh.platform.known
        return CertificatesAnswer([one.der for name in request.names for one in known.of(name)])

    def _spend(self, count: int) -> None:
        now = self._clock()
        if not self._rate.has(now, count):
            raise Problem(429, "bundle_rate", "too many bundles and receipts a second; try again later")
        self._rate.take(now, count)

    def state(self) -> MeshState:
        """Whom to seal to, and who is revoked. Raises Problem 404."""
        known = self._enabled().platform.known
        return MeshState([certificate.der for certificate in known.gateways()], known.revocations.encoded)

    def _enabled(self) -> Mesh:
        if self._mesh is None:
            raise Problem(404, "mesh_disabled", "this gateway takes no bundles: gateway.mesh.enabled is false")
        return self._mesh
