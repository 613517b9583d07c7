"""Records of Waystation's topics, as the tests of the ledger's pipelines write them."""

from datetime import UTC, date, datetime
from typing import Any

from schemas.envelope import Headers, Instruction, Meta, ingress_headers
from schemas.events import Event, ProgressEvent, RecipientOutcome, encode
from schemas.identity import new_message_id

AT_MS = 1_700_000_000_123
AT = datetime.fromtimestamp(AT_MS / 1000, UTC).replace(tzinfo=None)
DAY = date(2023, 11, 14)
ID = new_message_id()
META = Meta(qos=2, flags="ar", expires=AT_MS + 1000, accepted=AT_MS * 1000 + 7, seq=5)


def headers(meta: Meta = META, *more: tuple[str, bytes]) -> Headers:
    return [*ingress_headers(ID, "sender", meta, b"\x01\xff"), *more]


def egress(router: str, number: int = 0, limit: int | None = None, scope: str = "routed") -> Headers:
    instruction = Instruction(1, 7, number, limit, AT_MS, scope)
    return headers(META, ("instr", instruction.encode()), ("router", router.encode()))


def event(kind: Event, topic: str, offset: int = 0) -> tuple[Any, ...]:
    return (b"key", encode(kind), topic, 0, offset, AT_MS, None)


def relinquish(number: int | None, *deliveries: RecipientOutcome, **more: Any) -> ProgressEvent:
    fields = {"kind": "relinquish", "id": ID, "partition": 1, "offset": 7, "appended_ms": AT_MS, "shard": 3}
    return ProgressEvent(**{**fields, "number": number, "deliveries": list(deliveries), **more})


def raw(topic: str, value: bytes | None, key: bytes | None = b"k", headers: Headers | None = None) -> tuple[Any, ...]:
    return (key, value, topic, 0, 0, AT_MS, headers)
