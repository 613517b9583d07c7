"""Certificates of agents that gateways have learned, on the compacted topic `mesh-certificates` (M5, M17).

A certificate that one gateway learns is known to all, and after any restart, so a bundle or a receipt does not depend
on where its originator or signer was last. Each gateway reads the topic when it starts and follows it. What it learns
itself it knows at once, and writes; what Kafka refuses is written again.

A record's key is the name in the certificate, U+0000, and a fingerprint of its signing key; its value is the
certificate (DER). So the topic has one certificate of each key, mostly the newest: if two gateways write at the same
time, an older one may come last, and a gateway that knows a newer one writes that again.

*Bounded* by names: beyond `most`, the name whose last record is the oldest is forgotten, with all its certificates, but
never a gateway's. As devices renew certificates after half of their lifetime, it is one that is gone, or there are too
many. All gateways forget the same, because they go by the order of the topic; the one that has written the record that
is too much, and any that starts, removes the forgotten ones from the topic, and what has expired for too long.

Whoever may write to the topic may write anything: what is not a certificate of the mesh's authority, under its own key,
is skipped and counted.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bundles.certificates import Certificate
from bundles.errors import CertificateError
from bundles.receipt import Role
from gateway.bus import Bus
from gateway.mesh.platform import Platform
from gateway.record import Record
from gateway.skipped_records import SkippedRecords
from gateway.slices import in_slices

_AGAIN_S: Final = 5.0
_KEY_BYTES_MAX: Final = 255 + 1 + 32

log = structlog.get_logger(__name__)


class CertificateTopic:
    """Of one gateway. `most` names; `wall_s` gives seconds since the epoch."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        platform: Platform,
        most: int,
        wall_s: Callable[[], float],
        counts: Counter[str],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._bus, self._topic, self._platform = bus, topic, platform
        self._most, self._wall_s, self._counts, self._on_fatal = most, wall_s, counts, on_fatal
        self._names: OrderedDict[str, dict[bytes, Certificate]] = OrderedDict()  # on the topic; the oldest first
        self._coming: deque[Record] = deque()
        self._applying: asyncio.Task[None] | None = None
        self._sent: Counter[bytes] = Counter()  # by key, records that are on their way, here or back here
        self._again: dict[bytes, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._skipped = SkippedRecords("mesh-certificates", counts, "mesh_certificate_records_skipped", wall_s)

    def __len__(self) -> int:
        """How many names the topic has certificates of."""
        return len(self._names)

    async def start(self) -> None:
        """Returns once all that was on the topic is known; what comes later follows. Raises BusError."""
        latest: dict[bytes, Record] = {}

        def read(record: Record) -> None:
            key = record.key() or b""
            latest.pop(key, None)
            latest[key] = record

        ends = await self._bus.read(self._topic, {0: 0}, read)
        async for record in in_slices(latest.values()):
            for key in self._apply(record):
                self._write(key, None)
        self._platform.when_renewed(self._announce)
        self._bus.follow({(self._topic, 0): ends[0]}, self._take)

    def learn(self, der: bytes) -> None:
        """Takes a certificate that somebody has brought. Raises CertificateError if it is not the authority's."""
        found = self._platform.learn(der)
        if found is not None:
            self._announce(found)

    def _announce(self, certificate: Certificate) -> None:
        if not certificate.may_have_signed(self._wall_s()):
            return
        key = _key(certificate)
        known = self._names.get(certificate.name, {}).get(key)
        if known is None or known.not_after_s < certificate.not_after_s:
            self._write(key, certificate.der)

    def _write(self, key: bytes, der: bytes | None) -> None:
        """A certificate, or None to remove it."""
        self._sent[key] += 1
        self._bus.produce(self._topic, 0, key, der, None, partial(self._written, key, der))

    def _written(self, key: bytes, der: bytes | None, error: Any, record: Record) -> None:
        if error is None:
            return
        self._returned(key)
        self._counts["mesh_certificates_unwritten"] += 1
        if der is None:  # the next start removes it
            return
        if self._timer is None:
            log.warning("certificate not written; it is tried again", reason=error.str())
        self._write_later(key, der)

    def _write_later(self, key: bytes, der: bytes) -> None:
        """If it is still known then. What is too much waits until somebody brings it again after a restart."""
        if len(self._again) < self._most:
            self._again[key] = der
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._write_again)

    def _write_again(self) -> None:
        self._timer = None
        again, self._again = self._again, {}
        for key, der in again.items():
            if self._platform.known.has(der):
                self._write(key, der)

    def _returned(self, key: bytes) -> bool:
        """Whether a record with this key is one that was written here."""
        if key not in self._sent:
            return False
        self._sent[key] -= 1
        if not self._sent[key]:
            del self._sent[key]
        return True

    # -- what is on the topic ------------------------------------------------------------------------------------------

    def _take(self, records: list[Record]) -> None:
        self._coming += records
        if self._applying is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply_all())

    async def _apply_all(self) -> None:
        """In slices: each certificate of another gateway has to be verified."""
        try:
            while self._coming:
                coming, self._coming = self._coming, deque()
                async for record in in_slices(coming):
                    is_own = self._returned(record.key() or b"")
                    for key in self._apply(record):
                        if is_own:
                            self._write(key, None)
        except Exception as error:
            self._on_fatal(error)
        finally:
            self._applying = None

    def _apply(self, record: Record) -> list[bytes]:
        """Keys that are to be removed from the topic, because there is no room or their time is over."""
        key, der = record.key() or b"", record.value()
        try:
            name = _name(key)
            if der is None:
                self._remove(name, key)
                return []
            certificate = self._platform.known.find(der) or self._platform.known.authority.read(der)
            if _key(certificate) != key:
                raise CertificateError("a certificate has the key of another")
        except CertificateError as error:
            self._skipped.skip(record.offset(), error)
            return []
        if not certificate.may_have_signed(self._wall_s()):
            self._remove(name, key)
            return [key]
        self._platform.known.add(der)
        self._names.setdefault(name, {})[key] = certificate
        self._names.move_to_end(name)
        self._write_newer(certificate, key)
        return self._bound()

    def _write_newer(self, certificate: Certificate, key: bytes) -> None:
        for known in self._platform.known.of(certificate.name):
            if known.not_after_s > certificate.not_after_s and _key(known) == key and key not in self._sent:
                self._write_later(key, known.der)

    def _bound(self) -> list[bytes]:
        if len(self._names) <= self._most:
            return []
        for name, certificates in self._names.items():
            if not any(Role.GATEWAY in one.roles for one in certificates.values()):
                keys = [*certificates]
                for key in keys:
                    self._remove(name, key)
                return keys
        return []

    def _remove(self, name: str, key: bytes) -> None:
        """It is not on the topic any more. The gateways' own are known from their files, and go on being so."""
        certificates = self._names.get(name, {})
        certificate = certificates.pop(key, None)
        if certificate is None:
            return
        if not certificates:
            del self._names[name]
        if certificate.name != self._platform.name:
            self._platform.known.remove(certificate.der)


def _key(certificate: Certificate) -> bytes:
    raw = certificate.key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return certificate.name.encode() + b"\0" + hashlib.blake2b(raw, digest_size=16).hexdigest().encode()


def _name(key: bytes) -> str:
    """Raises CertificateError for a key of another form."""
    name, mark, fingerprint = key.partition(b"\0")
    if len(key) > _KEY_BYTES_MAX or not (name and mark and fingerprint):
        raise CertificateError("the key of a record is not a name and a fingerprint")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CertificateError("the key of a record is not UTF-8") from error
