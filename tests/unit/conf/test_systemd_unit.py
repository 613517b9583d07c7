"""The agent's systemd unit: a command line that there is, and directives in their sections."""

import configparser
import shlex
from pathlib import Path

from typer.main import get_command

from edge.cli.main import application

UNIT = Path(__file__).parents[3] / "conf" / "systemd" / "waystation-agent.service"


def test_the_unit_runs_the_agent() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    _, group, name, *options = shlex.split(service["ExecStart"])
    command = get_command(application()).commands[group].commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, options).params["conf"] == Path("/etc/waystation/agent.toml")
