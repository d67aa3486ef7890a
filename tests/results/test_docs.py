"""The pages on reports: their links lead somewhere, the checklist is whole, and the gallery is what the command makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ["hoefler-belli.md", "reading-the-report.md", "gallery/README.md"]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = DOCS / name
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.is_file(), f"{name} links to {target}"
        headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_all_twelve_rules_are_there() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| .+ \|$", (DOCS / "hoefler-belli.md").read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 13)]


def test_the_gallery_shows_the_published_speedups_and_fits() -> None:
    page = DOCS / "gallery" / "c4140.html"
    assert page.stat().st_size < 1_000_000
    text = page.read_text()
    for figure in ("154.04", "76.59", "39.88", "43.87", "22.67", "12.44", "2.01", "3.86", "1.94", "3.53"):
        assert f">{figure}<" in text
    assert str(DOCS.resolve()) not in text
    assert "/tmp/" not in text
