"""Settings of HTTP: `[gateway.http]` (G11). `conf/base.toml` documents every key."""

from typing import Annotated, Final

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.mesh_settings import MeshSettings
from schemas.sections import Positive, Seconds, Section

REQUEST_BYTES: Final = 4_194_304
"""The most that a request's body may have for which no setting says so."""

REQUEST_TIMEOUT_MAX_S: Final = 86_400
"""The longest that a setting lets a request wait for replies."""


class HttpSettings(Section, frozen=True, kw_only=True):
    """The HTTP bearer. `limits.packet_bytes` limits its bodies, and its connections count like all others."""

    requests: Positive
    streams: Positive
    header_bytes: Annotated[int, Meta(ge=1024, le=65536)]
    header_fields: Annotated[int, Meta(ge=16, le=1024)]
    arriving_bytes: Annotated[int, Meta(ge=REQUEST_BYTES)]
    read_timeout_s: Seconds
    body_bytes_per_s: Positive
    write_timeout_s: Seconds
    kafka_timeout_s: Seconds
    heartbeat_s: Seconds
    stream_window: Annotated[int, Meta(ge=1, le=65535)]
    stream_expiry_s: Positive
    idempotency_keys: Positive
    idempotency_s: Seconds
    waiting_requests: Positive
    waiting_requests_per_client: Positive
    request_timeout_s: Annotated[int, Meta(ge=1, le=REQUEST_TIMEOUT_MAX_S)]
    request_timeout_max_s: Annotated[int, Meta(ge=1, le=REQUEST_TIMEOUT_MAX_S)]
    reply_bytes: Positive
    origins: list[str]


def check_http(http: HttpSettings, packet_bytes: int, mesh: MeshSettings) -> None:
    """The rules between these keys, `gateway.limits.packet_bytes` and `gateway.mesh`. Raises SettingsError."""
    bodies = {"gateway.limits.packet_bytes": packet_bytes}
    if mesh.enabled:
        bodies["gateway.mesh.request_bytes"] = mesh.request_bytes
    setting, largest = max(bodies.items(), key=lambda body: body[1])
    if http.arriving_bytes < largest:
        raise SettingsError(
            f"gateway.http.arriving_bytes = {http.arriving_bytes} is too small: the largest body would never be taken; "
            f"allowed: at least {setting} = {largest}"
        )
    if http.request_timeout_s > http.request_timeout_max_s:
        raise SettingsError(
            f"gateway.http.request_timeout_s = {http.request_timeout_s} is too long; "
            f"allowed: at most gateway.http.request_timeout_max_s = {http.request_timeout_max_s}"
        )
