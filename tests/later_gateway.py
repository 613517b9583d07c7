"""`python -m tests.later_gateway [AHEAD]`: a gateway as the next release may be (R5; vernemq#2488), or one that is
AHEAD of this release by more, and does not read the versions before its predecessor's.

It reads one version of records more than this release, and adds a field LATER to everything that it tells other
gateways: heartbeats, leases, fences, session and spool records, share groups' messages, the header `meta`, links and
relayed connections. It writes the version that this release reads, as it must while gateways of this release live.

Functions are replaced before the modules that import them are loaded.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

import schemas.cluster_topics
import schemas.envelope
import schemas.events
import schemas.fences
import schemas.leases
import schemas.members
import schemas.session_log

ARGV: Final = (sys.executable, "-m", "tests.later_gateway")
LATER: Final = "later-release"
AHEAD: Final = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 1
VERSION: Final = schemas.members.RECORDS + AHEAD
OLDEST: Final = max(schemas.members.OLDEST_RECORDS, VERSION - 1)
_META_FIELDS: Final = 9
"""Fields of the header `meta` behind its version that this release knows."""


def json_with_more(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode_more(value: Any) -> bytes:
        return msgspec.json.encode({**msgspec.json.decode(encode(value)), LATER: [LATER]})

    return encode_more


def msgpack_with_more(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode_more(value: Any) -> bytes:
        found = msgspec.msgpack.decode(encode(value))
        return msgspec.msgpack.encode({**found, LATER: 1} if isinstance(found, dict) else [*found, LATER])

    return encode_more


def heartbeat_with_more(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    more = json_with_more(encode)

    def encode_more(value: Any) -> bytes:
        if isinstance(value, schemas.members.Heartbeat):
            value = msgspec.structs.replace(value, reads=OLDEST, reads_to=VERSION)
        return more(value)

    return encode_more


def meta_with_more(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode_more(meta: Any) -> bytes:
        raw = encode(meta)
        return raw + b";" * (_META_FIELDS - raw.count(b";")) + b";" + LATER.encode()

    return encode_more


def replace(where: Any, name: str, with_more: Callable[[Callable[[Any], bytes]], Callable[[Any], bytes]]) -> None:
    setattr(where, name, with_more(getattr(where, name)))


def become_later() -> None:
    """Call it once, before the gateway is loaded."""
    schemas.members.RECORDS = VERSION  # type: ignore[misc]
    schemas.members.OLDEST_RECORDS = OLDEST  # type: ignore[misc]
    replace(schemas.events, "encode", heartbeat_with_more)
    replace(schemas.leases, "encode_lease", json_with_more)
    replace(schemas.fences, "encode_fence", json_with_more)
    replace(schemas.cluster_topics, "encode_fences", json_with_more)
    replace(schemas.session_log, "encode", json_with_more)
    replace(schemas.envelope.Meta, "encode", meta_with_more)

    from gateway.host import relay_header
    from gateway.host.proxy_protocol import FIXED_BYTES
    from gateway.links import frames
    from gateway.shard import share_messages, spool_records

    replace(spool_records, "_encode", msgpack_with_more)
    share_encode, relay_encode, opening = share_messages.encode, relay_header.encode, frames.opening

    def share_with_more(message: Any, sender: Any) -> Any:
        value, headers = share_encode(message, sender)
        return msgpack_with_more(lambda raw: raw)(value), [*headers, (LATER, b"1")]

    def relay_with_more(client: Any) -> bytes:
        header = relay_encode(client)
        extension = relay_header._tlv(0xE7, LATER.encode())
        length = FIXED_BYTES
        body = header[length:] + extension
        return header[: length - 2] + len(body).to_bytes(2, "big") + body

    def opening_with_more(me: Any) -> bytes:
        raw = opening(me)
        at = len(frames.PREFACE) + frames._HEAD.size
        hello = msgspec.json.encode({**msgspec.json.decode(raw[at:]), LATER: 1})
        return frames.PREFACE + frames._HEAD.pack(1, len(hello)) + hello + frames._HEAD.pack(200, 2) + b"??"

    share_messages.encode = share_with_more
    relay_header.encode = relay_with_more
    frames.opening = opening_with_more


if __name__ == "__main__":
    become_later()
    from gateway.__main__ import main

    sys.exit(main())
