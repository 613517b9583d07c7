"""The page of a date as HTML: one file that loads nothing and runs nothing."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jobs.report.connections import connections
from jobs.report.facts import Facts
from jobs.report.feeds import feeds
from jobs.report.findings import findings, outcomes
from jobs.report.latency import completion_times, latency
from jobs.report.parts import Section, bytes_words, plain_number
from jobs.report.traffic import days, fan_outs, talkers, topics, traffic

SECTIONS = (findings, traffic, latency, completion_times, outcomes, talkers, topics, fan_outs, feeds, connections, days)
"""In the order of the page; one that has nothing to show on the date gives None."""


def page(facts: Facts) -> str:
    """The page; names that clients chose are escaped."""
    made = (section(facts) for section in SECTIONS)
    sections: Sequence[Section] = [section for section in made if section is not None]
    totals = facts.totals
    figures = {
        "messages accepted": plain_number(totals["messages"]),
        "payload": bytes_words(totals["bytes"]),
        "deliveries": plain_number(totals["deliveries"]),
        "instructions": plain_number(totals["instructions"]),
        "messages completed": plain_number(totals["completions"]),
        "publishing clients": plain_number(totals["senders"]),
        "receiving clients": plain_number(totals["recipients"]),
    }
    return (
        _environment()
        .get_template("page.j2")
        .render(date=facts.date, until=f"{facts.until:%H:%M:%S}", figures=figures, sections=sections)
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("jobs.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"grouped": _grouped, "drawing": Markup}
    return environment


def _grouped(text: Any) -> Markup:
    """Digits of a long integer in groups of three, by style alone: copying yields the plain number."""
    shown = str(text)
    if not re.fullmatch(r"\d{5,}", shown):
        return Markup.escape(shown)
    first = len(shown) % 3
    parts = [shown[:first], *(shown[at : at + 3] for at in range(first, len(shown), 3))]
    return Markup("<b></b>").join(part for part in parts if part)
