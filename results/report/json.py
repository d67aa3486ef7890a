"""The whole report as JSON, units in the names; null where a figure is not known."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from results.report.content import Report

FORMAT_VERSION = 1
"""Raised when a name changes its meaning or goes."""


def finite(value: Any) -> Any:
    """A document without infinite and undefined numbers, which JSON does not have: they become null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render(report: Report) -> str:
    """One JSON object."""
    document = finite({"format_version": FORMAT_VERSION, "title": report.title, **asdict(report)})
    for content, curve in zip(document["curves"], report.curves, strict=True):
        content["title"] = curve.title
    document["problems"] = [{"source": source, "reason": reason} for source, reason in report.problems]
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
