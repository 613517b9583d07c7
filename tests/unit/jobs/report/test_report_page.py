"""The page of a report: whatever clients call themselves, it stays a page of text that loads nothing (R11)."""

from collections import Counter
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.report import parts
from jobs.report.page import page
from jobs.report.parts import CUT, NAME_LENGTH, TITLE_LENGTH, name, plain_number
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import (
    NOON,
    completion,
    facts_of,
    instruction,
    message,
    outcome,
    presence,
    write_busy_date,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</bdi></td></table><img src=x onerror=alert(2)>",
    "\" onmouseover='alert(3)",
    "{{ 7 * 7 }}{% raw %}",
    r"$\frac{1}{$ and $SYS",
    "#010101 #030301",
    "\u202egnp.exe",
    "zero\u200bwidth\x07bell",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "𝕎aystation 🛰️ \u0301\u0302\u0303",
    "&lt;b&gt;&amp;",
    "a" * 5000,
)


class Seen(HTMLParser):
    """What a browser makes of a page: elements by their tag, attributes, texts of the cells with names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.names: list[str] = []
        self.ids: Counter[str] = Counter()
        self._in_name = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(key, value or "") for key, value in attrs]
        self.ids.update(value or "" for key, value in attrs if key == "id")
        if tag == "bdi":
            self._in_name = True
            self.names.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_name = self._in_name and tag != "bdi"

    def handle_data(self, data: str) -> None:
        if self._in_name:
            self.names[-1] += data


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a date on which all names are hostile."""
    directory = tmp_path_factory.mktemp("hostile")
    tables = str(directory / "tables")
    for n, hostile in enumerate(HOSTILE):
        at, one = NOON + timedelta(seconds=n), f"m{n}"
        append(tables, "messages", [message(one, at, hostile, hostile, flags="a")])
        append(tables, "instructions", [instruction(one, at, 1, router=hostile)])
        append(tables, "outcomes", [outcome(one, at, 2, hostile), outcome(one, at, 3, hostile, outcome="dropped")])
        append(tables, "presence_history", [
            presence(hostile, at, "connected", at, user=hostile),
            presence(hostile, at, "lost", at + timedelta(seconds=5), reason=hostile, user=hostile),
        ])  # fmt: skip
    append(tables, "completions", [completion("m0", NOON, 1)])
    append(tables, "quarantine", [
        {"topic": one, "partition": 0, "offset": 1, "reason": one, "at": NOON, "appended": NOON} for one in HOSTILE
    ])  # fmt: skip
    return page(facts_of(tables, str(directory / "spill")))


def test_hostile_names_are_text(hostile_page):
    """No element, attribute or style comes of them, and a reader sees them."""
    seen = Seen(hostile_page)
    assert not {"script", "img", "iframe", "object", "link"} & seen.tags.keys()
    assert not [key for key, _ in seen.attributes if key.startswith("on")]
    assert seen.tags["table"] == hostile_page.count("</table>")
    for hostile in HOSTILE[:6]:
        assert hostile in seen.names
    assert "\\u202egnp.exe" in seen.names
    assert "zero\\u200bwidth\\x07bell" in seen.names
    assert "\u202e" not in hostile_page
    assert HOSTILE[8] in seen.names, "text from right to left is shown, apart from what is around it"


def test_a_long_name_is_cut_and_its_title_has_it(hostile_page):
    cut = "a" * NAME_LENGTH + CUT
    seen = Seen(hostile_page)
    assert cut in seen.names
    assert ("title", "a" * TITLE_LENGTH + CUT) in seen.attributes
    assert max(map(len, seen.names)) == len(cut)


def test_a_page_loads_nothing(hostile_page):
    links = [
        value for key, value in Seen(hostile_page).attributes if key in ("src", "href", "xlink:href", "data", "action")
    ]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "@import" not in hostile_page
    assert "default-src 'none'" in hostile_page


def test_plots_say_what_they_show(tmp_path):
    """An image with a label each, headings in order, captions; no id stands twice."""
    write_busy_date(str(tmp_path / "tables"))
    seen = Seen(page(facts_of(str(tmp_path / "tables"), str(tmp_path / "spill"))))
    labels = [value for key, value in seen.attributes if key == "aria-label" and value != "Sections"]
    assert len(labels) == seen.attributes.count(("role", "img")) == seen.tags["figure"] == seen.tags["figcaption"] == 10
    assert "p50 500, p90 900, p99 990, p99.9 999" in " ".join(labels)
    assert "at most 6 messages, at 12:01:00" in labels[0]
    assert seen.tags["caption"] == seen.tags["table"] > 5
    assert [one for one, times in seen.ids.items() if times > 1] == []
    assert seen.tags["h1"] == 1
    assert seen.tags["h2"] == seen.tags["section"]


def test_numbers_can_be_copied():
    """Digits are set apart by style alone."""
    assert [plain_number(value) for value in (0, 7, 1234567, 12.345, 0.25, 0.00012345, 123456.7, -1.5)] == [
        "0", "7", "1234567", "12.3", "0.25", "0.000123", "123457", "-1.5",
    ]  # fmt: skip


@given(st.text())
def test_a_name_is_printable_and_short(text):
    cell = name(text)
    assert cell.text.isprintable()
    assert len(cell.text) <= NAME_LENGTH + 1
    assert bool(cell.title) == (len(parts.visible(text)) > NAME_LENGTH)
