"""What an application gets with `import waystation`, and what `agent up` loads: nothing that they do not use."""

import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT

HEAVY = (
    *("aiohttp", "confluent_kafka", "gateway", "jobs", "kafka", "numpy", "pipelines"),
    *("pyarrow", "pyspark", "typer", "uvloop"),
)


def test_it_imports_what_a_device_has() -> None:
    program = f"import sys, waystation; print(*[name for name in {HEAVY} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_every_name_is_there() -> None:
    import waystation

    assert all(hasattr(waystation, name) for name in waystation.__all__)
    assert (ROOT / "waystation" / "py.typed").is_file()


def test_the_agent_runs_without_the_libraries_of_the_command_line(tmp_path: Path) -> None:
    """M19: they would stay in memory for as long as it runs. No settings: it ends once it has imported its parts."""
    heavy = ("typer", "rich", "pydantic", "aiohttp", "aiosmtpd", "aiosmtplib", "zeroconf")
    program = (
        "import sys, edge.cli.main as main\n"
        f"status = main._run(['agent', 'up', '--conf', {str(tmp_path / 'none.toml')!r}])\n"
        "import edge.agent.agent, edge.agent.mesh.member\n"
        f"print(status, *[name for name in {heavy} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1"]
    assert "cannot read the configuration file" in ended.stderr
