"""What `waystation agent status` shows of the uplink; JSON by msgspec."""

import msgspec


class BearerStatus(msgspec.Struct, kw_only=True):
    """`loss`: the part of requests without a good answer, smoothed, 0 to 1. `last_answer_s`:
    how long ago a gateway has answered, seconds; None if none has. `delivered`: bundles. The bytes are
    those of HTTP, without TLS and TCP."""

    name: str
    url: str
    gateway: str = ""
    is_up: bool = False
    round_trip_ms: int | None = None
    last_answer_s: float | None = None
    loss: float = 0.0
    last_problem: str = ""
    delivered: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class UplinkStatus(msgspec.Struct, kw_only=True):
    """`held`: bundles that wait for delivery; `refused`: messages that the platform will not take, and why;
    `reports_pending`: whether message presence does not know everything yet (M10); `claims_granted` and
    `claims_refused` since the start, without renewals."""

    is_up: bool
    presence_in_reach: bool
    held: int
    reports_pending: bool
    claims_granted: int
    claims_refused: int
    refused: dict[str, str]
    bearers: list[BearerStatus]
    last_problem: str = ""
