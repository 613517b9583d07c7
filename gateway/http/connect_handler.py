"""The access point's request: where a client may connect (G1, G12)."""

from typing import Any, Final

from gateway.http.problems import Problem, bad_request
from gateway.http.target import Query
from gateway.members.access_point import AccessPoint
from schemas.members import BEARERS

PARAMETERS: Final = ("bearer", "client")


class ConnectHandler:
    """Answers from `access_point`. A client's id has at most `client_id_bytes` bytes, as in CONNECT."""

    def __init__(self, access_point: AccessPoint, client_id_bytes: int) -> None:
        self._access_point = access_point
        self._client_id_bytes = client_id_bytes

    def check_enabled(self) -> None:
        """Raises Problem 404 if this gateway's access point is switched off."""
        if not self._access_point.is_enabled:
            raise Problem(
                404,
                "access_point_off",
                "the access point of this gateway is switched off (gateway.access_point.enabled): ask another gateway",
            )

    @property
    def caching(self) -> str:
        """Cache-Control of an answer: it is for one client, and the order is soon outdated."""
        return f"private, max-age={self._access_point.fresh_s}"

    def answer(self, query: Query) -> dict[str, Any]:
        """The body of an answer: `connect_points`, the best first, not empty. Raises Problem 400 for a wrong query, 503
        if no operational gateway has the bearer."""
        bearer, client = query.take("bearer"), query.take("client")
        query.done(PARAMETERS)
        if bearer not in BEARERS:
            raise bad_request("malformed_parameter", f"bearer must be one of: {', '.join(BEARERS)}")
        self._check_client(client)
        points = self._access_point.connect_points(bearer, client)
        if not points:
            raise Problem(
                503,
                "no_operational_gateway",
                f"no gateway that serves {bearer} is operational, as far as this one knows; ask another one, or again",
            )
        return {"connect_points": [point._asdict() for point in points]}

    def _check_client(self, client: str | None) -> None:
        if client is None:
            return
        if not 1 <= len(client.encode()) <= self._client_id_bytes or "\0" in client:
            raise bad_request(
                "malformed_parameter",
                f"client must be a client id: 1 to {self._client_id_bytes} bytes of UTF-8 without U+0000",
            )
