"""Small plots in SVG: bars on a scale of powers of ten, since systems differ by factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW, TOP = 720, 170, 90, 24, 46
# Readable on white and on black paper.
COLOURS = {"ours": "#d9480f", "limit": "#868e96", "peer": "#4c6ef5"}
TEXT = "#868e96"


class Bar(NamedTuple):
    label: str
    value: float
    kind: str  # ours, limit or peer


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, one below the other; the scale is logarithmic and says so."""
    values = [row.value for row in rows if row.value > 0]
    if not values:
        return ""
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    room = WIDTH - LEFT - RIGHT
    height = TOP + ROW * len(rows) + 28

    def at(value: float) -> float:
        return LEFT + room * (math.log10(value) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="8" y="36" font-size="11">{escape(unit)}, logarithmic</text>',
    ]
    for power in range(low, high + 1):
        x = at(10**power)
        bottom = height - 24
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{TEXT}" '
            f'stroke-opacity="0.3"/><text x="{x:.1f}" y="{bottom + 16}" font-size="11" '
            f'text-anchor="middle">{tick(10.0**power)}</text>'
        )
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        width = max(at(row.value) - LEFT, 1.0) if row.value > 0 else 1.0
        weight = ' font-weight="bold"' if row.kind == "ours" else ""
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end"{weight}>'
            f"{escape(row.label)}</text>"
            f'<rect x="{LEFT}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}" '
            f'fill="{COLOURS[row.kind]}"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 15}" font-size="12"{weight}>'
            f"{number_text(row.value)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def tick(value: float) -> str:
    """A power of ten as people write it."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 1_000:
        return f"{value / 1_000:g}k"
    return f"{value:g}"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
