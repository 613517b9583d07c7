"""Pages can be read in light and dark: text has a contrast of 4.5 to 1 at least with its ground (WCAG 2.2, 1.4.3), what
is drawn one of 3 (1.4.11)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
STYLES = {
    "console": ROOT / "gateway" / "console" / "console.css",
    "quality": ROOT / "jobs" / "quality" / "quality_page.css",
    "report": ROOT / "jobs" / "report" / "page.css",
}
TEXT = ("ink", "faint", "good", "bad", "link")
COLOR = r"--([\w-]+): (#[0-9a-f]{6});"


def luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def schemes(style: str) -> dict[str, dict[str, str]]:
    """The colors of each scheme, by name."""
    light, dark = re.findall(r":root \{([^}]*)\}", style)
    return {"light": dict(re.findall(COLOR, light)), "dark": dict(re.findall(COLOR, dark))}


@pytest.mark.parametrize("page", STYLES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_stand_out_from_their_ground(page: str, scheme: str) -> None:
    colors = schemes(STYLES[page].read_text())[scheme]
    assert {"ground", "ink", "faint"} <= colors.keys()
    for name, color in colors.items():
        least = 4.5 if name in TEXT else 3.0 if name.startswith("series") else 1.0
        assert contrast(color, colors["ground"]) >= least, name


@pytest.mark.parametrize("page", STYLES)
def test_no_color_is_outside_the_schemes(page: str) -> None:
    """Each is a variable: one by itself would be for one scheme only."""
    style = re.sub(r":root \{[^}]*\}", "", STYLES[page].read_text())
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgb\(|color-mix", style)
