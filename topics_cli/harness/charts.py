"""Line charts as inline SVG: nothing is fetched, nothing is run, and a column says its figures when it is pointed at.

A chart is as wide as its place in the page; its text is sized so that it can be read at 400 pixels as well as in three
columns. Colours come from the page's style (`--c1` …), so that light and dark need no second chart. Lines have their
names in a legend, and an axis begins at 0, unless it is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 420
HEIGHT: Final = 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 26
COLORS: Final = 6
"""Colours that the page's style has; more lines than that have the same again, dashed."""

Line = tuple[str, Sequence[float | None]]
"""A name, and a value for each place of the x axis; None where there is none."""


def brief(value: float) -> str:
    """A number for an axis: 1.2k, 35M."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def ticks(top: float, count: int = 4) -> list[float]:
    """Round values from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / count))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if step * factor * count >= top)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


class Scale:
    """Values to pixels."""

    def __init__(self, low: float, high: float, begin: float, end: float, *, is_log: bool = False) -> None:
        self._is_log = is_log
        self._low, self._high = (math.log10(low), math.log10(high)) if is_log else (low, high)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Where a value lies."""
        value = math.log10(value) if self._is_log else value
        part = (value - self._low) / (self._high - self._low) if self._high > self._low else 0.0
        return round(self._begin + part * (self._end - self._begin), 1)


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that hold a range of positive values."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def chart(
    title: str,
    unit: str,
    xs: Sequence[float],
    lines: Sequence[Line],
    *,
    marks: Sequence[tuple[float, str]] = (),
    x_unit: str = "s",
    is_log: bool = False,
    x_labels: Sequence[str] = (),
) -> str:
    """One figure: a title, the plot, a legend. `is_log`: both axes; `marks` are moments that something happened at."""
    values = [value for _, line in lines for value in line if value is not None and (value > 0 or not is_log)]
    if not values or not xs:
        return f"<figure><h3>{escape(title)}</h3><p class=none>Nothing was measured.</p></figure>"
    y_ticks = decades(min(values), max(values)) if is_log else ticks(max(values))
    y_scale = Scale(y_ticks[0], y_ticks[-1], HEIGHT - _BOTTOM, _TOP, is_log=is_log)
    x_scale = Scale(xs[0] if is_log else 0.0, xs[-1], _LEFT, WIDTH - _RIGHT, is_log=is_log)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}, {escape(unit)}">']
    for tick in y_ticks:
        y = y_scale.at(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="axis" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{brief(tick)}</text>')
    places = list(xs) if is_log else [tick for tick in ticks(xs[-1], 5) if tick <= xs[-1]]
    for place, x in enumerate(places):
        label = x_labels[place] if x_labels else brief(x) + (f" {x_unit}" if place == len(places) - 1 else "")
        anchor = "end" if x_scale.at(x) > WIDTH - 24 else "middle"
        parts.append(f'<text class="axis" x="{x_scale.at(x)}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    for moment, said in marks:
        x = x_scale.at(min(max(moment, 0.0), xs[-1]))
        parts.append(f'<path class="mark" d="M{x} {_TOP}V{HEIGHT - _BOTTOM}"><title>{escape(said)}</title></path>')
    for place, (_, line) in enumerate(lines):
        parts.append(_path(place, xs, line, x_scale, y_scale, is_log=is_log))
    parts += _columns(xs, lines, x_scale, unit, x_unit)
    legend = "".join(
        f'<li><i class="k{place % COLORS + 1}{" dashed" if place >= COLORS else ""}"></i>{escape(name)}</li>'
        for place, (name, _) in enumerate(lines)
    )
    head = f"<h3>{escape(title)} <small>{escape(unit)}</small></h3>"
    below = f"<ul class=legend>{legend}</ul>" if len(lines) > 1 else ""
    return f"<figure>{head}{''.join(parts)}</svg>{below}</figure>"


def _path(
    place: int, xs: Sequence[float], line: Sequence[float | None], x_scale: Scale, y_scale: Scale, *, is_log: bool
) -> str:
    """A line that is broken where there is no value; a value alone is a dot."""
    runs: list[list[str]] = [[]]
    for x, value in zip(xs, line, strict=True):
        if value is None or (is_log and value <= 0):
            runs.append([])
        else:
            runs[-1].append(f"{x_scale.at(x)} {y_scale.at(value)}")
    style = f"s{place % COLORS + 1}{' dashed' if place >= COLORS else ''}"
    found = [f'<path class="line {style}" d="M{"L".join(run)}"/>' for run in runs if len(run) > 1]
    dots = [point for run in runs if len(run) == 1 or is_log for point in run]
    for point in dots:
        across, _, down = point.partition(" ")
        found.append(f'<circle class="dot {style}" cx="{across}" cy="{down}" r="3"/>')
    return "".join(found)


def _columns(xs: Sequence[float], lines: Sequence[Line], scale: Scale, unit: str, x_unit: str) -> list[str]:
    """Invisible columns that say what the lines are worth there."""
    found = []
    edges = [scale.at(x) for x in xs]
    for place, x in enumerate(xs):
        begin = (edges[place - 1] + edges[place]) / 2 if place else _LEFT
        end = (edges[place] + edges[place + 1]) / 2 if place + 1 < len(xs) else WIDTH - _RIGHT
        said = [f"{brief(x)} {x_unit}"]
        said += [f"{name}: {brief(line[place] or 0)} {unit}" for name, line in lines if line[place] is not None]
        box = f'x="{begin:.1f}" y="{_TOP}" width="{max(0.5, end - begin):.1f}" height="{HEIGHT - _TOP - _BOTTOM}"'
        found.append(f'<rect class="column" {box}><title>{escape(chr(10).join(said))}</title></rect>')
    return found
