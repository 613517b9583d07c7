"""Certificates to try TLS with: an authority of your own, and certificates that it signs."""

import ipaddress
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "Waystation test authority"
BEFORE = timedelta(minutes=5)
"""Certificates are valid from this long before now, because clocks differ."""

Report = Callable[[str], None]


def make(
    directory: Path,
    hosts: Sequence[str],
    clients: Sequence[str],
    days: int,
    report: Report,
    gateways: Sequence[str] = (),
) -> None:
    """Creates an authority (`ca`) unless it exists, and signed by it `server`, for these names and addresses, one for
    each client, and one for each gateway of a cluster, which is client and server of the others.

    Each is a certificate `.crt` and a key `.key`, in PEM. Raises OSError, and ValueError for an impossible name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority, key = _authority(directory, days, report)
    names = _alternative_names(hosts)
    server, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    _issue(directory, "server", hosts[0], [server], names, authority, key, days, report)
    for name in clients:
        _issue(directory, name, name, [client], None, authority, key, days, report)
    for name in gateways:
        _issue(directory, name, name, [server, client], None, authority, key, days, report)


def _authority(directory: Path, days: int, report: Report) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if certificate.exists() and key.exists():
        private = load_pem_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key} was not created by this command: use another directory")
        return x509.load_pem_x509_certificate(certificate.read_bytes()), private
    made, name = ec.generate_private_key(ec.SECP256R1()), _name(AUTHORITY)
    builder = _builder(name, name, made, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    signed = builder.sign(made, hashes.SHA256())
    _write(directory, "ca", signed, made, report)
    return signed, made


def _issue(
    directory: Path,
    file: str,
    name: str,
    usages: Sequence[x509.ObjectIdentifier],
    names: x509.SubjectAlternativeName | None,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
    report: Report,
) -> None:
    """A certificate `<file>.crt` and its key `<file>.key`, unless they exist."""
    if Path(file).name != file or file == "ca":
        raise ValueError(f"{file!r} cannot be used as a file name: choose another name")
    if (directory / f"{file}.crt").exists():
        report(f"already exists: {directory / file}.crt")
        return
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    _write(directory, file, builder.sign(authority_key, hashes.SHA256()), key, report)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - BEFORE).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _write(
    directory: Path, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, report: Report
) -> None:
    """Only the owner can read the key. It is written first, so that a certificate is never without one."""
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / f"{file}.key").unlink(missing_ok=True)
    with os.fdopen(os.open(directory / f"{file}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(text)
    (directory / f"{file}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    report(f"created {directory / file}.crt and {directory / file}.key")
