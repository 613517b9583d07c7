"""The ledger takes every envelope that a gateway writes; also of bundles (M14)."""

import re

import pytest
from hypothesis import given

from pipelines.ledger.history import META
from schemas.envelope import Incarnation, Meta
from schemas.errors import RecordError
from tests.unit.schemas.test_codecs import metas


@given(metas)
def test_every_meta_that_is_written_is_well_formed_for_the_ledger(meta: Meta) -> None:
    assert re.search(META, meta.encode().decode())


@pytest.mark.parametrize("meta", ["1;2;;;1;7;;;;", "1;2;;;1;7;1.2;;;05", "1;2;;;1;7;1.2;;;x", "1;2;;;1;7;1;;;5;6"])
def test_what_gateways_cannot_read_is_malformed_for_the_ledger_too(meta: str) -> None:
    assert not re.search(META, meta)
    with pytest.raises(RecordError):
        Meta.decode(meta.encode())


@given(metas)
def test_fields_that_a_later_release_adds_are_passed_over(meta: Meta) -> None:
    """R5."""
    known = meta.encode()
    more = known + b";" * (9 - known.count(b";")) + b";later;;x"
    assert re.search(META, more.decode())
    assert Meta.decode(more) == meta


def test_the_epoch_of_the_home_stands_last() -> None:
    """Where gateways share the shards; without, no byte is added."""
    will = Meta(1, "w", None, 1, None, epoch=5)
    assert will.encode() == b"1;1;w;;1;;;;;5"
    assert will._replace(seq=7, session=Incarnation(4, 2)).encode() == b"1;1;w;;1;7;4.2;;;5"
    assert will._replace(epoch=None).encode() == b"1;1;w;;1;"
