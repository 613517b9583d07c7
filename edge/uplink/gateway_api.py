"""What an agent asks of a gateway over HTTP, and what counts as an answer (M7, M9-M13; :mod:`schemas.mesh_api`).

**An answer counts only if it has status 200 and our JSON form, with a result for each thing asked.** A network's login
page, a redirect, a proxy's error page or another service is "not reachable", never a delivery. A problem counts as a
gateway's only in the form of RFC 9457; its text is passed on.
"""

import base64
import contextlib
import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from edge.client.access_point import AccessPoint
from edge.client.connect_points import ConnectPoint, NoConnectPoints, decode_answer
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.http_transport import Answer, HttpTransport, printable
from schemas.mesh_api import (
    BUNDLES_PATH,
    CERTIFICATES_PATH,
    MESH_PATH,
    QUERY_PATH,
    RECEIPTS_PATH,
    REPORTS_PATH,
    WAITING_PATH,
    BundlesAnswer,
    BundlesRequest,
    CertificatesAnswer,
    CertificatesRequest,
    MeshState,
    PresenceAnswer,
    PresenceQuery,
    ReceiptsAnswer,
    ReceiptsRequest,
    ReportedEvent,
    ReportsAnswer,
    ReportsRequest,
    WaitingAnswer,
    WaitingRequest,
)
from schemas.undecodable import UNDECODABLE

PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"
_TOKEN: Final = re.compile("[!-~]+")
RETRY_AFTER_MAX_S: Final = 600.0
T = TypeVar("T")


class Gateway(Protocol):
    """What the uplink needs of a gateway. All methods raise NotReachable and GatewayProblem."""

    async def probe(self) -> float:
        """The round trip of a small request, in seconds."""

    async def post_bundles(self, request: BundlesRequest) -> BundlesAnswer:
        """A result for each bundle, in order."""

    async def report(self, events: Sequence[ReportedEvent]) -> ReportsAnswer:
        """A result for each event, in order."""

    async def query(self, ids: Sequence[str]) -> PresenceAnswer:
        """What message presence knows of the messages."""

    async def mesh(self) -> MeshState:
        """The gateways' certificates and the revocation list."""

    async def certificates(self, request: CertificatesRequest) -> CertificatesAnswer:
        """Makes our certificates known; those of other names that the gateway knows."""

    async def waiting(self, request: WaitingRequest) -> WaitingAnswer:
        """What waits for devices that are away."""

    async def bring_receipts(self, request: ReceiptsRequest) -> ReceiptsAnswer:
        """A result for each receipt, in order."""

    async def connect_points(self, client: str) -> list[ConnectPoint]:
        """The gateways that serve HTTP, as the access point says, in the order to try."""

    def close(self) -> None:
        """Breaks idle connections."""


class Limits(NamedTuple):
    """`request_s`: for all of a request that carries bundles; `small_s`: of any other. `answer_bytes`: of one answer's
    body."""

    request_s: float = 120.0
    small_s: float = 15.0
    answer_bytes: int = 16 << 20


class _Problem(msgspec.Struct):
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    reason: str = ""
    detail: str = ""
    title: str = ""


class GatewayApi:
    """The gateway behind `transport`. `fields` go with each request: who we are (:func:`credentials`)."""

    def __init__(
        self, transport: HttpTransport, fields: Sequence[tuple[str, str]] = (), limits: Limits | None = None
    ) -> None:
        self._transport, self._limits = transport, limits or Limits()
        self._fields = (("Accept", JSON), ("Accept-Encoding", "identity"), *fields)

    async def probe(self) -> float:
        """As :meth:`Gateway.probe`: asks message presence about no message, which only a gateway answers."""
        answer = await self._ask("POST", QUERY_PATH, PresenceQuery([]), self._limits.small_s)
        _decoded(answer, PresenceAnswer)
        return answer.elapsed_s

    async def post_bundles(self, request: BundlesRequest) -> BundlesAnswer:
        """As :meth:`Gateway.post_bundles`."""
        answer = await self._ask("POST", BUNDLES_PATH, request, self._limits.request_s)
        found = _decoded(answer, BundlesAnswer)
        _check_count(len(found.results), len(request.bundles))
        return found

    async def report(self, events: Sequence[ReportedEvent]) -> ReportsAnswer:
        """As :meth:`Gateway.report`."""
        answer = await self._ask("POST", REPORTS_PATH, ReportsRequest(list(events)), self._limits.small_s)
        found = _decoded(answer, ReportsAnswer)
        _check_count(len(found.results), len(events))
        return found

    async def query(self, ids: Sequence[str]) -> PresenceAnswer:
        """As :meth:`Gateway.query`."""
        return _decoded(
            await self._ask("POST", QUERY_PATH, PresenceQuery(list(ids)), self._limits.small_s), PresenceAnswer
        )

    async def mesh(self) -> MeshState:
        """As :meth:`Gateway.mesh`."""
        return _decoded(await self._ask("GET", MESH_PATH, None, self._limits.small_s), MeshState)

    async def certificates(self, request: CertificatesRequest) -> CertificatesAnswer:
        """As :meth:`Gateway.certificates`."""
        return _decoded(await self._ask("POST", CERTIFICATES_PATH, request, self._limits.small_s), CertificatesAnswer)

    async def waiting(self, request: WaitingRequest) -> WaitingAnswer:
        """As :meth:`Gateway.waiting`."""
        return _decoded(await self._ask("POST", WAITING_PATH, request, self._limits.request_s), WaitingAnswer)

    async def bring_receipts(self, request: ReceiptsRequest) -> ReceiptsAnswer:
        """As :meth:`Gateway.bring_receipts`."""
        answer = await self._ask("POST", RECEIPTS_PATH, request, self._limits.request_s)
        found = _decoded(answer, ReceiptsAnswer)
        _check_count(len(found.results), len(request.receipts))
        return found

    async def connect_points(self, client: str) -> list[ConnectPoint]:
        """As :meth:`Gateway.connect_points`."""
        bearer = self._transport.base.scheme
        target = f"/v1/connect?bearer={bearer}&client={quote(client, safe='')}"
        answer = await self._ask("GET", target, None, self._limits.small_s)
        try:
            return decode_answer(_body(answer), bearer)
        except NoConnectPoints as error:
            raise NotReachable(str(error), is_certain=True) from error

    def close(self) -> None:
        """As :meth:`Gateway.close`."""
        self._transport.close()

    async def _ask(self, method: str, target: str, body: object, timeout_s: float) -> Answer:
        sent = b"" if body is None else msgspec.json.encode(body)
        fields = (*self._fields, ("Content-Type", JSON)) if method == "POST" else self._fields
        limit = self._limits.answer_bytes
        return await self._transport.exchange(method, target, fields, sent, timeout_s=timeout_s, answer_bytes=limit)


def credentials(
    base: AccessPoint, name: str, username: str = "", secret: str | None = None
) -> tuple[tuple[str, str], ...]:
    """The header fields that say who we are: X-Client-Id, and Basic (RFC 7617), or Bearer (RFC 6750) if there is a
    secret and no user. A secret is given over https or to this machine only. Raises ValueError for what HTTP cannot
    carry."""
    if ":" in username or (not username and secret is not None and not _TOKEN.fullmatch(secret)):
        raise ValueError("HTTP carries only user names without a colon, and tokens of printable ASCII without spaces")
    fields = [("X-Client-Id", name)] if name else []
    if secret is not None and base.is_private:
        basic = base64.b64encode(f"{username}:{secret}".encode()).decode()
        fields.append(("Authorization", f"Basic {basic}" if username else f"Bearer {secret}"))
    return tuple(fields)


def _body(answer: Answer) -> bytes:
    """The body of a 200. Raises NotReachable, GatewayProblem."""
    if answer.status == 200:
        if answer.content_type != JSON:
            raise NotReachable(
                f"the answer is {printable(answer.content_type) or 'of no type'}, not JSON: perhaps this network has "
                "a login page",
                is_certain=True,
            )
        return answer.body
    if 300 <= answer.status < 400:
        text = f"it answers {answer.status}, a redirect: perhaps this network has a login page"
        raise NotReachable(text, is_certain=True)
    problem = None
    if answer.content_type == PROBLEM:
        with contextlib.suppress(*UNDECODABLE):
            problem = msgspec.json.decode(answer.body, type=_Problem)
    if problem is None or problem.status != answer.status:
        raise NotReachable(f"it answers {answer.status}, and is no gateway of ours", is_certain=answer.status < 500)
    detail = printable(problem.detail or problem.title)
    raise GatewayProblem(answer.status, printable(problem.reason), detail, _seconds(answer.retry_after))


def _decoded(answer: Answer, kind: type[T]) -> T:
    body = _body(answer)
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise NotReachable(f"the answer is no {kind.__name__} ({printable(str(error))})", is_certain=True) from error


def _check_count(found: int, asked: int) -> None:
    if found != asked:
        raise NotReachable(f"the answer has {found} results for {asked}", is_certain=True)


def _seconds(retry_after: str) -> float:
    """Retry-After in seconds (RFC 9110, 10.2.3); 0 for a date, which would need the same clock."""
    is_number = retry_after.isascii() and retry_after.isdigit()
    return min(float(retry_after[:6]), RETRY_AFTER_MAX_S) if is_number else 0.0
