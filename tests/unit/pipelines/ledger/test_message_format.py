"""The ledger takes every envelope that a gateway writes; also of bundles (M14)."""

import re

from hypothesis import given

from pipelines.ledger.history import META
from schemas.envelope import Meta
from tests.unit.schemas.test_codecs import metas


@given(metas)
def test_every_meta_that_is_written_is_well_formed_for_the_ledger(meta: Meta) -> None:
    assert re.search(META, meta.encode().decode())
