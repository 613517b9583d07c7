"""Files for TLS that cannot be used: what is said about them."""

from pathlib import Path

import msgspec
import pytest

from gateway.host.tls import server_context
from schemas.errors import SettingsError
from schemas.settings import process_settings
from tests.unit.gateway.host.members_harness import make_certificates


def error_of(certificate: Path, key: Path) -> str:
    tls = process_settings({}).gateway.tls
    with pytest.raises(SettingsError) as refused:
        server_context(msgspec.structs.replace(tls, certificate=str(certificate), key=str(key)))
    return str(refused.value)


def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    names = sorted(path.stem for path in made.glob("*.key") if path.stem != "ca")
    said = error_of(made / f"{names[0]}.crt", made / f"{names[1]}.key")
    assert said.endswith("cannot be used: the key is not that of the certificate; replace both together")
    assert "gateway.tls.certificate" in said


def test_a_file_that_is_no_certificate(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    assert error_of(wrong, wrong).endswith("cannot be used: a file is not PEM, or is damaged")
