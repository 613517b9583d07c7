"""Bad records: each is found, with a reason, and goes to quarantine past all that good ones go through."""

import base64
import json
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.ledger import history
from pipelines.ledger.completion import progress_format
from pipelines.records import REASON_CHARS, judged, quarantine_records
from pipelines.routing import routes
from schemas.envelope import Headers
from schemas.events import RecipientOutcome, encode
from tests.integration.pipelines.ledger_records import AT_MS, egress, headers, raw, relinquish
from tests.integration.pipelines.streamed import kafka_rows, streamed


def replaced(headers: Headers, **values: bytes) -> Headers:
    return [(name, values.get(name, value)) for name, value in headers]


def other_instr(instr: bytes) -> Headers:
    return replaced(egress("active"), instr=instr)


GOOD = b'{"v":1,"kind":"relinquish","id":"m","partition":0,"offset":0,"appended_ms":1,"shard":1,"number":0}'
DELIVERY = (
    b'{"kind":"outcome","id":"m","partition":0,"offset":0,"appended_ms":1,"shard":1,"number":0,"deliveries":[%s]}'
)
POISON = [
    (raw("ingress", b"", key=None, headers=headers()), "the key, which is the destination, is missing"),
    (raw("ingress", b"", key=b"\xff", headers=headers()), "is not UTF-8"),
    (raw("ingress", b""), "the headers are [], not [id, src, meta, props]"),
    (raw("ingress", b"", headers=headers()[::-1]), "the headers are [props, meta, src, id]"),
    (raw("ingress", b"", headers=replaced(headers(), id=b"17")), "header id '17' is not a UUID"),
    (raw("ingress", b"", headers=replaced(headers(), src=b"\xff")), "header src is not UTF-8"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"2;0;;;1;")), "envelope version 2 is not 1"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"1;3;;;1;")), "header meta '1;3;;;1;' is malformed"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"\xff")), "header meta 'null' is malformed"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"1;0;;;9999999999999999999;")), "time out of range"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"1;0;;9999999999999999999;1;")), "an expiry out of range"),
    (raw("ingress", b"", headers=replaced(headers(), meta=b"1;0;;;1;99999999999")), "a sequence out of range"),
    (raw("egress", b"", headers=headers()), "not [id, src, meta, props, instr, router]"),
    (raw("egress", b"", headers=other_instr(b"1;2;3")), "header instr '1;2;3' is malformed"),
    (raw("egress", b"", headers=other_instr(b"9999999999;0;0;;1;routed")), "partition 9999999999 is"),
    (raw("egress", b"", headers=other_instr(b"0;0;0;;99999999999999;routed")), "is after that of the record"),
    (raw("progress", None), "the record has no value"),
    (raw("progress", b""), "the value is not the JSON of a ProgressEvent"),
    (raw("progress", b"[]"), "the value is not the JSON of a ProgressEvent"),
    (raw("progress", b"\xff"), "the value is not the JSON of a ProgressEvent"),
    (raw("progress", GOOD[:-1]), "the value is not the JSON of a ProgressEvent"),
    (raw("progress", GOOD.replace(b'"number":0', b'"number":"x"')), "or a field has the wrong type"),
    (raw("progress", GOOD.replace(b'"v":1', b'"v":2')), "ProgressEvent version 2 is not 1"),
    (raw("progress", GOOD.replace(b'"id":"m",', b"")), "id is missing"),
    (raw("progress", GOOD.replace(b"relinquish", b"gone")), "kind 'gone' is not one of outcome, relinquish, untouched"),
    (raw("progress", GOOD.replace(b'"number":0', b'"limit":1')), "number is missing"),
    (raw("progress", GOOD.replace(b'"number":0', b'"number":-1')), "number -1 is not between"),
    (raw("progress", GOOD.replace(b'"appended_ms":1', b'"appended_ms":9000000000000000000')), " is out of range"),
    (raw("progress", GOOD.replace(b'"appended_ms":1', b'"appended_ms":1800000000000')), "is after that of the record"),
    (raw("progress", DELIVERY % b"null"), "deliveries has a null element"),
    (raw("progress", DELIVERY % b'{"client":"c","outcome":"eaten","qos":1,"at_us":1}'), "deliveries.outcome 'eaten'"),
    (raw("progress", DELIVERY % b'{"client":"c","outcome":"sent","qos":1}'), "deliveries.at_us is missing"),
    (raw("completion", b'{"id":"m","touches":1,"appended_ms":1}'), "completed_ms is missing"),
    (raw("presence", b'{"client":"c","event":"here","gateway":"g","epoch":1,"seq":1,"at_us":1}'), "event 'here' is"),
    (raw("routes", b'{"op":"add","shard":1}'), "route_key is missing"),
    (raw("routes", b'{"op":"drop","route_key":"a"}'), "shard is missing"),
]  # fmt: skip


FORMATS = {
    "ingress": history.message_format,
    "egress": history.instruction_format,
    "progress": progress_format,
    "completion": history.completion_format,
    "presence": history.presence_format,
    "routes": routes.route_format,
}


def test_what_cannot_be_parsed_is_quarantined_with_its_reason(spark: SparkSession) -> None:
    """Every kind of bad record gives one quarantine event with a reason a person understands; good ones give none."""
    good = [
        raw("ingress", b"x", headers=headers()),
        raw("egress", b"x", headers=egress("active", 1, 2)),
        raw("progress", GOOD),
        raw("progress", GOOD[:-1] + b',"new":1}'),
        raw("routes", b'{"op":"tick"}'),
    ]
    rows = [(*row[:4], offset, *row[5:]) for offset, row in enumerate([row for row, _ in POISON] + good)]
    records = kafka_rows(spark, rows).coalesce(1).localCheckpoint()
    judgements = [judged(records.where(F.col("topic") == topic), form()) for topic, form in FORMATS.items()]
    found = [row for rows in judgements for row in quarantine_records(rows).collect()]
    events = {e["offset"]: e for e in (json.loads(row.value) for row in found)}
    wrong = {n: (r, events.get(n)) for n, (_, r) in enumerate(POISON) if r not in events.get(n, {}).get("reason", "")}
    assert not wrong
    assert len(events) == len(POISON)
    at = next(n for n, (row, _) in enumerate(POISON) if row[1] == b"[]")
    assert base64.b64decode(events[at]["record"]) == b"[]"
    assert (events[at]["topic"], events[at]["partition"]) == ("progress", 0)
    assert {row.key for row in found} == {topic.encode() for topic in FORMATS}


def test_a_reason_is_short_whatever_it_quotes(spark: SparkSession) -> None:
    """A header may be as large as a record: with all of it the report would fit on no topic."""
    rows = [raw("ingress", b"", headers=replaced(headers(), id=b"9" * 200_000))]
    records = kafka_rows(spark, rows).coalesce(1).localCheckpoint()
    [row] = quarantine_records(judged(records, history.message_format())).collect()
    assert len(json.loads(row.value)["reason"]) <= REASON_CHARS
    assert len(row.value) < 10_000


def test_bad_records_stand_beside_good_ones(spark: SparkSession, tmp_path: Path) -> None:
    """Each of them is reported, whatever it claims to be; and no good row is lost for the time that one claims."""

    def instruction(offset: int, router: str) -> tuple[Any, ...]:
        return (b"a/b", b"x", "egress", 3, offset, AT_MS, egress(router))

    found = streamed(
        spark,
        tmp_path / "instructions",
        [[instruction(0, ""), instruction(1, "")], [instruction(2, "active"), instruction(3, "")]],
        history.instructions,
    )
    assert [sorted(quarantined_offset(row) for row in batch) for batch in found] == [[0, 1], [-1, 3]]

    def progress(offset: int, value: bytes) -> tuple[Any, ...]:
        return (b"key", value, "progress", 0, offset, AT_MS, None)

    one = RecipientOutcome(client="c1", outcome="delivered", qos=1, at_us=AT_MS * 1000 + 5)
    good = encode(relinquish(0, one))
    from_afar = encode(relinquish(0, one, appended_ms=AT_MS + 20 * 86_400_000))
    other_version = good.replace(b'"v":1', b'"v":2')
    found = streamed(
        spark,
        tmp_path / "outcomes",
        [[progress(0, from_afar), progress(1, other_version)], [progress(2, good), progress(3, b"?")], []],
        history.outcomes,
    )
    assert [sorted(quarantined_offset(row) for row in batch) for batch in found[:2]] == [[0, 1], [-1, 3]]


def quarantined_offset(row: Row) -> int:
    """The offset of a bad record; -1 for the row of a good one."""
    return -1 if row.quarantined is None else int(row.quarantined.offset)
