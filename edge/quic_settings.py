"""Settings of a client's connection over QUIC: whom it trusts and what it shows, from PEM files."""

import ssl
from pathlib import Path
from typing import Final

from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from edge.errors import Unreachable
from edge.link import Address, QuicTls
from mqtt.quic_stream import configuration

_WINDOW_BYTES: Final = 1 << 20
_IDLE_TIMEOUT_S: Final = 3600.0  # MQTT's keep alive is shorter; the server's own time-out applies if it is


def quic_settings(address: Address, tls: QuicTls) -> QuicConfiguration:
    """The server is always verified. Raises Unreachable if the certificate files cannot be used."""
    settings = configuration(is_client=True, window=_WINDOW_BYTES, idle_timeout_s=_IDLE_TIMEOUT_S)
    settings.server_name = address.server_hostname or address.host
    settings.verify_mode = ssl.CERT_REQUIRED
    try:
        if tls.ca_file is not None:
            authorities = Path(tls.ca_file).read_bytes()
            x509.load_pem_x509_certificates(authorities)
            settings.load_verify_locations(cadata=authorities)
        else:
            system = ssl.get_default_verify_paths()
            settings.load_verify_locations(cafile=system.cafile, capath=system.capath)
        if tls.certificate is not None:
            chain = x509.load_pem_x509_certificates(Path(tls.certificate).read_bytes())
            settings.certificate, settings.certificate_chain = chain[0], chain[1:]
            settings.private_key = load_pem_private_key(Path(tls.key or tls.certificate).read_bytes(), None)
    except OSError as error:
        raise Unreachable(f"cannot read {error.filename}: {error.strerror}") from error
    except (TypeError, ValueError) as error:  # TypeError: the key is encrypted
        raise Unreachable(f"the certificate files for {address} cannot be used: {error}") from error
    return settings
