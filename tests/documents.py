"""README and docs, and the code that they show."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(text: str, *languages: str) -> list[str]:
    """The content of the fenced blocks in these languages, in their order."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
