"""Settings for bundles that agents bring: `[gateway.mesh]` (M7, M14, M17). `conf/base.toml` documents every key."""

from typing import Annotated, Final

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.mesh_api import BUNDLES_MAX
from schemas.sections import NotEmpty, NotNegative, Positive, Section

BUNDLE_ROOM: Final = 4_096
"""How much larger a bundle may be than the largest message, for header, signature and seal."""
_REQUEST_ROOM: Final = 16_384
"""For certificates and JSON beside a bundle in base64."""
_FILES = ("authority_file", "certificate_file", "key_file")


class MeshSettings(Section, frozen=True, kw_only=True):
    enabled: bool
    authority_file: str
    certificate_file: str
    key_file: str
    sealing_key_files: tuple[str, ...]
    revocations_file: str
    request_bundles: Annotated[int, Meta(ge=1, le=BUNDLES_MAX)]
    request_bytes: Annotated[int, Meta(ge=4_096, le=67_108_864)]
    requests: Positive
    bundles_per_s: NotNegative
    bundles_burst: Positive
    recent_bundles: Positive
    certificates: Positive
    lifetime_s: Positive
    sources: Positive
    originator_incarnations: Positive
    envelope_sources: Positive
    remembered_s: Annotated[float, Meta(gt=0)]
    carried: tuple[NotEmpty, ...]
    carrier_s: NotNegative
    carriers: Positive
    waiting_bundles: Annotated[int, Meta(ge=1, le=BUNDLES_MAX)]
    waiting_bytes: Annotated[int, Meta(ge=4_096, le=67_108_864)]


def check_mesh(mesh: MeshSettings, packet_bytes: int) -> None:
    """The rules between keys, and `gateway.limits.packet_bytes`. Raises SettingsError."""
    if not mesh.enabled:
        return
    missing = [name for name in _FILES if not getattr(mesh, name)]
    if not mesh.sealing_key_files:
        missing.append("sealing_key_files")
    if missing:
        names = ", ".join(f"gateway.mesh.{name}" for name in missing)
        raise SettingsError(
            f"gateway.mesh.enabled = true needs {names}: the gateway signs receipts and opens payloads with them"
        )
    least = (packet_bytes + BUNDLE_ROOM) * 4 // 3 + _REQUEST_ROOM
    if mesh.request_bytes < least:
        raise SettingsError(
            f"gateway.mesh.request_bytes = {mesh.request_bytes} is too small: the largest bundle, of "
            f"gateway.limits.packet_bytes = {packet_bytes}, would never be taken; allowed: at least {least}"
        )
    if mesh.remembered_s < mesh.lifetime_s:
        raise SettingsError(
            f"gateway.mesh.remembered_s = {mesh.remembered_s:g} is too small: a copy may come for as long as its "
            f"bundle lives; allowed: at least gateway.mesh.lifetime_s = {mesh.lifetime_s}"
        )
    for pattern in mesh.carried:
        if "*" in pattern[:-1]:
            raise SettingsError(
                f"gateway.mesh.carried: {pattern!r} has a * before its end; allowed: a name, or the beginning of names "
                "followed by *"
            )
    if mesh.bundles_per_s and mesh.bundles_burst < mesh.request_bundles:
        raise SettingsError(
            f"gateway.mesh.bundles_burst = {mesh.bundles_burst} is too small: a full request would never be taken; "
            f"allowed: at least gateway.mesh.request_bundles = {mesh.request_bundles}"
        )
