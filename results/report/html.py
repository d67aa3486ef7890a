"""The report as one HTML page that stands alone: no network, light and dark, printable, under a megabyte."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from results.report import cells
from results.report.content import BYTES_TITLE, FOOTNOTES, Report
from results.report.figures import Figure, all_figures
from results.report.setups import setups

if TYPE_CHECKING:
    from jinja2 import Template

LARGEST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Detail:
    """How much goes into the page."""

    figures: int
    pngs: int
    runs: int
    curves: int


DETAILS = [
    Detail(figures=24, pngs=9, runs=400, curves=100), Detail(figures=24, pngs=0, runs=400, curves=100),
    Detail(figures=12, pngs=0, runs=200, curves=60), Detail(figures=3, pngs=0, runs=50, curves=25),
]  # fmt: skip
"""Tried in turn until the page is small enough; what is left out is said on the page."""


def render(report: Report) -> str:
    """The whole page."""
    figures = _Figures(all_figures(report))
    text = ""
    for detail in DETAILS:
        text = _render(report, figures, detail)
        if len(text.encode()) < LARGEST_BYTES:
            break
    return text


class _Figures:
    """Figures, each drawn at most once."""

    def __init__(self, figures: list[Figure]) -> None:
        self._figures = figures
        self._svgs: dict[str, str] = {}
        self._pngs: dict[str, str] = {}

    def shown(self, detail: Detail) -> dict[str, list[dict[str, str]]]:
        """Figures by the anchor of the curve that they stand before."""
        groups: dict[str, list[dict[str, str]]] = {}
        for number, figure in enumerate(self._figures[: detail.figures]):
            if figure.name not in self._svgs:
                self._svgs[figure.name] = figure.svg()
            if number < detail.pngs and figure.name not in self._pngs:
                self._pngs[figure.name] = base64.b64encode(figure.png(dpi=200)).decode()
            shown = {
                "name": figure.name,
                "title": figure.title,
                "description": figure.description,
                "svg": self._svgs[figure.name],
            }
            groups.setdefault(figure.group, []).append(shown | {"png": self._pngs[figure.name] if number < detail.pngs else ""})
        return groups


def _render(report: Report, figures: _Figures, detail: Detail) -> str:
    shown_setups, setup_of, commands = setups(report, detail.runs)
    return _template().render(
        report=report,
        curves=report.curves[: detail.curves],
        runs=report.runs[: detail.runs],
        not_counted=report.not_counted[: detail.runs],
        problems=report.problems[: detail.runs],
        figures=figures.shown(detail),
        setups=shown_setups,
        setup_of=setup_of,
        commands=commands,
        cells=cells,
        footnotes=FOOTNOTES,
        bytes_title=BYTES_TITLE,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=PackageLoader("results.report"), **options).get_template("report.html")
