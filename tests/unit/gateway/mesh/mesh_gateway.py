"""A gateway in memory that takes bundles over HTTP, and agents that write them."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bundles import content as content_format
from bundles import sealing
from bundles.bundle import Bundle, Header, Kind, encode, sign
from bundles.content import Content
from bundles.receipt import Receipt, Role
from bundles.receipt import decode as decode_receipt
from bundles.receipt import verify as verify_receipt
from schemas.envelope import Meta
from schemas.events import MessagePresenceEvent, decode
from schemas.events import encode as event_bytes
from schemas.identity import partition_of
from schemas.settings import Settings
from schemas.states import MessagePresenceState
from tests.unit.bundles.files import PLATFORM, mesh_files
from tests.unit.bundles.keys import certificate, key, sealing_key
from tests.unit.gateway.http.http_harness import Answer, HttpHarness

PROXY = {"X-Client-Id": "proxy", "Content-Type": "application/json"}
DAY_S = 86_400


class MeshGateway(HttpHarness):
    """`mesh` are settings of `[gateway.mesh]` beside the files."""

    def __init__(self, directory: Path, *, mesh: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(directory, **options)
        self._mesh = mesh_files(directory / "mesh", self.clock()) | (mesh or {})

    def settings(self) -> Settings:
        settings = super().settings()
        gateway = settings.gateway
        mesh = msgspec.structs.replace(gateway.mesh, **self._mesh)
        return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(gateway, mesh=mesh))

    def certificates(self, *names: str) -> list[bytes]:
        return [certificate(name, now_s=self.clock()).der for name in names]

    async def bring(self, *bundles: Bundle | bytes, certificates: Iterable[bytes] | None = None) -> Answer:
        """A proxy's request; with the certificates of the originators unless others are given."""
        raw = [encode(one) if isinstance(one, Bundle) else one for one in bundles]
        if certificates is None:
            names = dict.fromkeys(one.header.originator for one in bundles if isinstance(one, Bundle))
            certificates = self.certificates(*names)
        return await self.ask(
            "/v1/bundles", {"bundles": [b64(one) for one in raw], "certificates": [b64(one) for one in certificates]}
        )

    async def ask(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        data = io.BytesIO(msgspec.json.encode(body))
        return await self.request("POST", path, data=data, headers=headers or PROXY)

    def ingress(self) -> list[tuple[str, str, str, bytes, Meta]]:
        """(id, source, destination, payload, meta) of each record."""
        found = []
        for partition in range(2):
            for record in self.broker.partitions[self.topics.ingress, partition]:
                headers = dict(record.headers() or [])
                meta = Meta.decode(headers["meta"])
                names = headers["id"].decode(), headers["src"].decode(), (record.key() or b"").decode()
                found.append((*names, record.value() or b"", meta))
        return found

    def reports(self) -> list[MessagePresenceEvent]:
        records = [r for p in range(2) for r in self.broker.partitions[self.topics.message_presence, p]]
        return [decode(MessagePresenceEvent, record.value() or b"") for record in records]

    def merge(self, message_id: str, delivered_by: str) -> None:
        """As the ledger does it, when it has read who has delivered a message."""
        lists: dict[str, Any] = {"holders": [], "attempting": [], "refused": [], "retired": False, "claim": None}
        state = MessagePresenceState(
            id=message_id,
            state="delivered",
            origin="agent",
            delivered_by=delivered_by,
            delivered_to="a/b",
            delivered_us=5_000_000,
            kept_until_ms=2**50,
            judged=-1,
            **lists,
        )
        topic, partition = self.topics.message_presence_state, partition_of(message_id, 2)
        self.bus.produce(topic, partition, message_id.encode(), event_bytes(state), None, lambda *_: None)

    def checked(self, encoded: str) -> Receipt:
        """A receipt in an answer, as an agent verifies it."""
        receipt = decode_receipt(base64.b64decode(encoded))
        verify_receipt(receipt, self.platform.known.signer_keys)
        assert (receipt.signer, receipt.role) == (PLATFORM, Role.GATEWAY)
        return receipt


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def outcomes(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [result["outcome"] for result in answer.json["results"]]


def made(
    sequence: int = 1,
    payload: bytes = b"x",
    destination: str = "a/b",
    originator: str = "agent",
    *,
    kind: Kind = Kind.MESSAGE,
    signer: str = "",
    sealed_to: str = PLATFORM,
    incarnation: int = 7,
    low_water: int = 1,
    lifetime_s: int = DAY_S,
    age_s: int = 0,
    **content: Any,
) -> Bundle:
    """A bundle with a message of `originator`, signed by its key or that of `signer`."""
    header = Header(originator, incarnation, sequence, destination, kind, 1_000, lifetime_s, low_water)
    plain = content_format.encode(Content(payload, **content))
    ciphertext = sealing.seal(header, plain, sealing_key(sealed_to).public_key())
    bundle = sign(header, ciphertext, key(signer or originator))
    return Bundle(header, ciphertext, bundle.signature, age_s=age_s)
