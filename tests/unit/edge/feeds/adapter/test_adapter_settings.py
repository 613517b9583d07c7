"""The settings file of an adapter: its example is complete, and what is wrong is said in one sentence (S2)."""

from pathlib import Path

import msgspec
import pytest

from edge.feeds.adapter import settings as module
from edge.feeds.adapter.address import Address, parse_address, parse_request_server
from edge.feeds.adapter.own_source import feed_source
from edge.feeds.adapter.settings import AdapterSettings, example, kafka_options, load
from feeds.counter import Counter
from schemas.errors import SettingsError
from schemas.validation import paths
from tests.unit.edge.feeds.adapter.adapter_data import written_settings

NMEA = 'format="nmea0183"\nname="src"\nfrom="tcp://h:1"'
CSV = 'format="csv"\nname="src"\nfrom="file:x.csv"'


def test_the_example_has_every_key_and_its_default(tmp_path: Path) -> None:
    file = tmp_path / "adapter.toml"
    file.write_text(example())
    found = load(file)
    least = written_settings(tmp_path, 'format="nmea0183"\nname="harbour"\nfrom="tcp://127.0.0.1:10110"')
    assert msgspec.structs.replace(found, feed=least.feed) == least
    for path in paths(AdapterSettings):
        assert f"{path[-1]} = " in example(), path


@pytest.mark.parametrize(
    ("source", "more", "reason"),
    [
        (NMEA + "\nfolow=true", "", "Did you mean source.follow?"),
        (NMEA.replace("nmea0183", "nmea"), "", "source.format"),
        (NMEA.replace("tcp://h:1", "http://h:1"), "", "is no source"),
        (NMEA + "\nfollow=true", "", "source.follow is for files"),
        (CSV + "\nrotate_wait_s=1", "", "source.rotate_wait_s is for files that are followed"),
        (NMEA + "\npace=2.0", "", "source.pace is for files"),
        (NMEA + '\nrequest="udp://h:2"', "", "source.request is for MoldUDP64"),
        ('format="moldudp64"\nname="m"\nfrom="file:x"', "", "MoldUDP64 comes in datagrams"),
        ('format="moldudp64"\nname="m"\nfrom="udp://h:1"\nrequest="h:2"', "", "is no request server"),
        (CSV.replace("file:x.csv", "-"), "", "source.csv.columns is needed"),
        (CSV + '\nsequencer="q"\nmapping={number="n"}', "", "sequencer's numbers run over all lines"),
        (CSV + "\nmapping={counter_last=9}", "", "set `number` too"),
        ('format="miniseed"\nname="m"\nfrom="-"\nminiseed={counter_first=9,counter_last=9}', "", "two values or more"),
        ('format="miniseed"\nname="m"\nfrom="-"\nminiseed={record_bytes=5}', "", "record_bytes"),
        (NMEA.replace("src", "a+b"), "", "source.name: a stream id has no control characters"),
        ('format="moldudp64"\nname="a#b"\nfrom="udp://h:1"', "", "source.name: a stream id has no control characters"),
        (NMEA.replace("src", "n" * 250), "", "source.name: a stream id has 1 to 200 bytes"),
        (NMEA + f"\nepoch={2**63}", "", "source.epoch"),
        (NMEA + "\nmapping={number='n'}", "", "source.mapping is for CSV and JSON"),
        (CSV + "\nmapping={number='n',counter_first=9}", "", "counter_first = 9 needs source.mapping.counter_last"),
        (CSV + "\nmapping={number='n'}\ncsv={columns=['m']}", "", "source: there is no column 'n'"),
        (CSV + "\ncsv={encoding='none'}", "", "unknown encoding"),
        (NMEA, '[kafka]\npassword_file="p"', "needs kafka.sasl_mechanism"),
        (NMEA, '[kafka]\nbootstrap="a b"', "kafka.bootstrap"),
        (NMEA, "[limits]\nbatch_messages=30000", "must be at most those of the buffer"),
        (NMEA, "[limits]\nmessage_bytes=800000\nbatch_bytes=1000", "limits.message_bytes must be at most"),
        (NMEA, "[limits]\nrequest_ms=600", "limits.request_ms"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, source: str, more: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason.replace("?", r"\?")):
        written_settings(tmp_path, source, more)


def test_a_short_timeout_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[feed]\nname="f"\nslot="active"\nadapter="a/b"\n[source]\n{NMEA}')
    with pytest.raises(SettingsError, match=r"feed\.adapter"):
        load(file)
    file.write_text(f'[feed]\nname="f"\nslot="active"\nadapter="a"\ntimeout_s=0.1\n[source]\n{NMEA}')
    with pytest.raises(SettingsError, match=r"feed\.timeout_s = 0\.1 is too short"):
        load(file)


def test_a_machine_that_no_beat_may_name_is_refused(tmp_path: Path) -> None:
    """Nobody would read the beats, the adapter neither: it would wait for ever."""
    file = tmp_path / "a.toml"
    file.write_text(f'[feed]\nname="f"\nslot="active"\nadapter="a"\nmachine="{"m" * 256}"\n[source]\n{NMEA}')
    with pytest.raises(SettingsError, match=r"feed\.machine"):
        load(file)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = written_settings(tmp_path, CSV, '[kafka]\ntls=true\nca_file="ca.pem"')
    assert found.address == Address("file", str(tmp_path / "x.csv"))
    assert found.state.directory == str(tmp_path / "adapter")
    assert kafka_options(found.kafka, "t").ca_file == str(tmp_path / "ca.pem")


def test_passwords_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("secret\n")
    more = '[kafka]\nsasl_mechanism="SCRAM-SHA-512"\nusername="u"\npassword_file="p"'
    assert kafka_options(written_settings(tmp_path, NMEA, more).kafka, "t").password == "secret"
    (tmp_path / "p").unlink()
    with pytest.raises(SettingsError, match=r"kafka\.password_file .* cannot be read"):
        kafka_options(written_settings(tmp_path, NMEA, more).kafka, "t")


def test_what_decides_on_pairs(tmp_path: Path) -> None:
    more = "\nmapping={stream='s',number='n',counter_last=255}"
    found = feed_source(written_settings(tmp_path, CSV + more).source, 5)
    assert found.mapping is not None
    assert (found.mapping.stream, found.mapping.number, found.mapping.counter) == ("s", "n", Counter(0, 255))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("-", Address("pipe")),
        ("file:/a b", Address("file", "/a b")),
        ("tcp://h:1", Address("tcp", host="h", port=1)),
        ("tcp-listen://[::1]:1", Address("tcp-listen", host="::1", port=1)),
        (
            "udp://0.0.0.0:1?group=239.1.2.3&interface=127.0.0.1",
            Address("udp", "", "0.0.0.0", 1, "239.1.2.3", "127.0.0.1"),
        ),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert address.can_wait is (address.kind != "udp")


@pytest.mark.parametrize(
    "text",
    [
        *("", "file:", "x", "tcp://h", "tcp://:1", "tcp://h:99999", "tcp://h:1/x", "tcp://u@h:1"),
        *("tcp://h:1?group=1.2.3.4", "udp://h:1?x=1", "udp://h:1?group=10.0.0.1", "udp://h:1?group=x"),
        *("udp://h:1?interface=10.0.0.1", "file:a\0b"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_address(text)


def test_request_servers() -> None:
    assert parse_request_server("udp://h:1") == ("h", 1)
    for text in ("tcp://h:1", "udp://h:1?group=239.1.1.1", "h:1"):
        with pytest.raises(ValueError, match=r".+"):
            parse_request_server(text)


def test_the_example_is_in_the_package() -> None:
    assert module.EXAMPLE.endswith(".toml")
