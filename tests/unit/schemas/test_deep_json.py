"""What is nested too deeply is malformed, and ends nobody who reads it."""

from collections.abc import Callable

import pytest

from schemas.cluster_topics import decode_fences
from schemas.errors import RecordError
from schemas.events import RouteEvent, decode
from schemas.session_log import KIND_OF
from schemas.session_log import decode as decode_session

DEPTH = 100_000
DEEP = b'{"x":' + b"[" * DEPTH + b"]" * DEPTH + b"}"

DECODERS: dict[str, Callable[[bytes], object]] = {
    "fences": decode_fences,
    "event": lambda raw: decode(RouteEvent, raw),
    **{f"session log {kind}": lambda raw, kind=kind: decode_session(kind, raw) for kind in KIND_OF.values()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_record_that_is_nested_too_deeply_is_malformed(name: str) -> None:
    with pytest.raises(RecordError):
        DECODERS[name](DEEP)
