"""What an application gets with `import waystation`: names, and nothing of the data centre."""

import subprocess
import sys

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
