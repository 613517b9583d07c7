"""The files of `[gateway.mesh]`, in a directory."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bundles.identity import private_pem
from bundles.receipt import Role
from tests.unit.bundles.keys import AUTHORITY, certificate, key, sealing_key

PLATFORM = "platform"


def pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


def mesh_files(
    directory: Path, now_s: float, name: str = PLATFORM, roles: Iterable[Role] = (Role.GATEWAY,)
) -> dict[str, Any]:
    """Writes them, of the platform `name`; returns the settings."""
    contents = {
        "authority_file": AUTHORITY.pem,
        "certificate_file": pem(certificate(name, roles=roles, now_s=now_s).der),
        "key_file": private_pem(key(name)),
        "sealing_key_files": private_pem(sealing_key(name)),
    }
    directory.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"enabled": True}
    for setting, content in contents.items():
        path = directory / f"{setting}.pem"
        path.write_bytes(content)
        settings[setting] = (str(path),) if setting == "sealing_key_files" else str(path)
    return settings


def mesh_environment(settings: dict[str, Any]) -> dict[str, str]:
    """The settings for a process."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}
    return {f"WAYSTATION_GATEWAY__MESH__{name.upper()}": text for name, text in texts.items()}
