"""Errors of the uplink. The text of each says what happened, for the log and for `waystation agent status`.

WaystationError
└── UplinkError
    ├── NotReachable      no gateway answers over the bearer, or what answers is none
    └── GatewayProblem    a gateway answers that it does not do what was asked (RFC 9457)
"""

from schemas.errors import WaystationError


class UplinkError(WaystationError):
    """Base of the uplink's errors: nothing is known to have been delivered."""


class NotReachable(UplinkError):
    """No gateway answers. `is_certain`: something said so, as a refused connection or the answer of a login page does;
    otherwise time ran out or a connection broke, which may pass."""

    def __init__(self, text: str, *, is_certain: bool = False) -> None:
        super().__init__(text)
        self.is_certain = is_certain


class GatewayProblem(UplinkError):
    """A gateway answers with a problem: `status` of HTTP, the gateway's word for the `reason`, its text, and after how
    many seconds to try again (0: it does not say)."""

    def __init__(self, status: int, reason: str, detail: str, retry_after_s: float = 0.0) -> None:
        super().__init__(
            f"the gateway answers {status}, {reason}: {detail}" if reason else f"the gateway says: {detail}"
        )
        self.status, self.reason, self.detail, self.retry_after_s = status, reason, detail, retry_after_s

    @property
    def is_for_the_request(self) -> bool:
        """Whether the gateway objects to what was sent: the same request will not do better anywhere."""
        return self.status in (400, 413, 415, 422)

    @property
    def is_too_large(self) -> bool:
        """Whether the gateway takes no request of this size."""
        return self.status == 413
