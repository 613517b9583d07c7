"""Processor seconds by test file, of the test process and all that it started: on a shared machine they say what wall
clock does not. `pytest --processor-time` prints them at the end."""

from collections import Counter
from collections.abc import Iterator

import psutil
import pytest

PROPERTY = "processor_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time", action="store_true", help="print the processor seconds of each test file")


def spent_s() -> float:
    """By this process and its descendants so far, those that have ended included."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and both of children that have ended
        except psutil.NoSuchProcess:
            continue
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not item.config.option.processor_time:
        return (yield)
    before = spent_s()
    item.user_properties.append((PROPERTY, before))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    if call.when == "teardown" and item.config.option.processor_time:
        began = dict(item.user_properties)[PROPERTY]
        report.user_properties = [(PROPERTY, spent_s() - began)]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.option.processor_time:
        return
    by_file: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                by_file[report.nodeid.partition("::")[0]] += dict(report.user_properties)[PROPERTY]
    terminalreporter.section("processor seconds by file")
    for file, seconds in by_file.most_common():
        terminalreporter.write_line(f"{seconds:8.1f}  {file}")
    terminalreporter.write_line(f"{by_file.total():8.1f}  in all")
