"""Charts as inline SVG: lines with bands, and stacked bars. A chart with only one point is a table of numbers.

Colours are CSS variables of the page, --c0 … --c7.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 40  # margins around the plot
DIGIT = 7.5  # the width of a digit in the widest of the page's fonts
POINTS_MAX, BARS_MAX, DOTS_MAX, NUM_COLOURS = 400, 120, 60, 8


class Series(NamedTuple):
    """One line: y over x. low, high: the ends of its band. There is no point where y is None, and no band where low or
    high is."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    marks: Sequence[tuple[float, str]] = (),
    limits: tuple[float, float] | None = None,
    empty: str = "nothing yet",
    doubling: str = "",
) -> str:
    """Return a <figure> of several lines.

    marks: (x, text) of vertical lines. limits: (lowest, highest) y; None: as the points need. empty: the text if there
    are no points. doubling: "x", "y" or "xy": values on these axes are logarithms to base 2, and the axis shows the
    numbers themselves. Neighbouring points of a line with more than POINTS_MAX points are averaged. If all points have
    the same x, the figure is a table of numbers.
    """
    shown = _shown(series)
    if not shown:
        return _figure(title, {}, f'<p class="empty">{escape(empty)}</p>')
    points = [(one, k) for one in shown.values() for k, y in enumerate(one.y) if y is not None]
    if len({one.x[k] for one, k in points}) == 1:
        rows = [
            (one.name, one.y[k], *(bound[k] if bound else None for bound in (one.low, one.high))) for one, k in points
        ]
        return _numbers(title, x_label, y_label, points[0][0].x[points[0][1]], rows)
    body, names = plot(x_label, y_label, series, marks, limits, doubling)
    return _figure(title, names, _svg(title, body))


def plot(
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    marks: Sequence[tuple[float, str]] = (),
    limits: tuple[float, float] | None = None,
    doubling: str = "",
) -> tuple[str, dict[int, str]]:
    """Draw several lines, at least one of which has a point, as `lines` does. Return (the content of an SVG image of
    WIDTH by HEIGHT, {number of the colour: name of the line})."""
    shown = _shown(series)
    numbers = [v for one in shown.values() for v in (*one.y, *one.low, *one.high) if v is not None]
    if "y" not in doubling:
        numbers.append(0)
    ends = limits or (min(numbers), max(numbers))
    x = [x for one in shown.values() for x in one.x]
    whole = "x" in doubling or all(value == int(value) for value in x)
    axes = _Axes(x, ends, grow=limits is None, whole=whole, doubling=doubling)
    drawn = [_band(axes, one, k) + _line(axes, one, k) for k, one in shown.items()]
    names = {k: one.name for k, one in shown.items()}
    return axes.draw(x_label, y_label) + _marks(axes, marks) + "".join(drawn), names


def _shown(series):
    """Return {place in `series`: line} of the lines that have points. The colour of a line depends on its place, so
    that empty lines do not change the colours of the others."""
    return {k: _thin(one) for k, one in enumerate(series) if any(y is not None for y in one.y)}


def stacked(
    title: str,
    x_label: str,
    y_label: str,
    x: Sequence[float],
    parts: dict[str, Sequence[float]],
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Return a <figure> of stacked bars. parts: {name: a height for each x}. marks: as for `lines`.

    Neighbours among more than BARS_MAX bars are averaged. With a single x the figure is a table of numbers."""
    parts = {name: heights for name, heights in parts.items() if any(heights)}
    if not x or not parts:
        return _figure(title, {}, '<p class="empty">nothing yet</p>')
    if len(x) == 1:
        rows = [(name, heights[0], None, None) for name, heights in parts.items()]
        return _numbers(title, x_label, y_label, x[0], rows)
    body, names = bars(x_label, y_label, x, parts, marks)
    return _figure(title, names, _svg(title, body))


def bars(
    x_label: str,
    y_label: str,
    x: Sequence[float],
    parts: dict[str, Sequence[float]],
    marks: Sequence[tuple[float, str]] = (),
    doubling: str = "",
) -> tuple[str, dict[int, str]]:
    """Draw stacked bars, at least one, and return what `plot` does. parts: {name: a height for each x}, not all 0.
    doubling: "x" or "", see `lines`."""
    size = math.ceil(len(x) / BARS_MAX)
    x = _means(x, size)
    parts = {name: _means(heights, size) for name, heights in parts.items()}
    half = 0.4 * min((b - a for a, b in zip(x, x[1:])), default=1)
    ends = (0, max(map(sum, zip(*parts.values()))))
    axes = _Axes([x[0] - half, x[-1] + half], ends, whole=True, doubling=doubling)
    body = [axes.draw(x_label, y_label), _marks(axes, marks)]
    base = [0.0] * len(x)
    for k, (name, heights) in enumerate(parts.items()):
        for i, height in enumerate(heights):
            (left, top), (right, bottom) = axes.at(x[i] - half, base[i] + height), axes.at(x[i] + half, base[i])
            body.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
                f'fill="var(--c{k % NUM_COLOURS})"><title>{escape(name)}: {height:.4g}</title></rect>'
            )
            base[i] += height
    return "".join(body), dict(enumerate(parts))


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return about `wanted` round numbers from `low` to `high`."""
    raw = (high - low) / wanted
    size = 10 ** math.floor(math.log10(raw))
    step = next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= raw * 0.999)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


class _Axes:
    """The scales of a picture. y: the lowest and the highest value. grow: whether the y axis is extended to round
    numbers. whole: whether x only has whole numbers, such as iterations. doubling: see `lines`."""

    def __init__(
        self, x: Sequence[float], y: tuple[float, float], grow: bool = True, whole: bool = True, doubling: str = ""
    ):
        self.whole = whole
        self.doubling = doubling
        self.x0, self.x1 = min(x), max(x)
        if self.x0 == self.x1:
            self.x0, self.x1 = self.x0 - 0.5, self.x1 + 0.5
        self.y0, self.y1 = y if y[1] > y[0] else (y[0], y[0] + 1)
        if grow:
            step = 1.0 if "y" in doubling else (ys := ticks(self.y0, self.y1))[1] - ys[0]
            self.y0, self.y1 = math.floor(self.y0 / step) * step, math.ceil(self.y1 / step - 1e-9) * step

    def at(self, x, y):
        """Return the place of a point in the picture's units. A y beyond the axis is moved to its end."""
        y = min(max(y, self.y0), self.y1)
        return (
            LEFT + (x - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM),
        )

    def number(self, axis, value):
        """Return the text of a value on the axis "x" or "y"."""
        return _short(2**value if axis in self.doubling else value)

    def draw(self, x_label, y_label):
        parts = []
        for value in ticks(self.y0, self.y1):
            if "y" in self.doubling and value != int(value):
                continue
            _, y = self.at(self.x0, value)
            kind = "grid" if value or "y" in self.doubling else "axis"
            parts.append(
                f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{self.number("y", value)}</text>'
            )
        if "y" in self.doubling:
            _, y = self.at(self.x0, self.y0)
            parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for value in ticks(self.x0, self.x1, 6):
            if not self.whole or value == int(value):
                x, y = self.at(value, self.y0)
                number = self.number("x", value)
                middle = min(x, WIDTH - DIGIT / 2 * len(number))  # so that the last number lies within the picture
                parts.append(
                    f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + 4:.1f}"/>'
                    f'<text x="{middle:.1f}" y="{y + 17:.1f}" text-anchor="middle">{number}</text>'
                )
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}" text-anchor="middle">{escape(x_label)}'
            f'</text><text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>"
        )
        return "".join(parts)


def _line(axes, one, k):
    points = [axes.at(x, y) for x, y in zip(one.x, one.y) if y is not None]
    colour = f"var(--c{k % NUM_COLOURS})"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [
        f'<circle cx="{axes.at(x, y)[0]:.1f}" cy="{axes.at(x, y)[1]:.1f}" r="2.5" fill="{colour}">'
        f"<title>{escape(one.name)}, {axes.number('x', x)}: {axes.number('y', y)}</title></circle>"
        for x, y in zip(one.x, one.y)
        if y is not None
    ]
    shown = "".join(dots) if len(dots) <= DOTS_MAX else ""
    return f'<polyline class="line" stroke="{colour}" points="{path}"/>{shown}'


def _band(axes, one, k):
    whole = [(x, low, high) for x, low, high in zip(one.x, one.low, one.high) if None not in (low, high)]
    there, back = [axes.at(x, high) for x, _, high in whole], [axes.at(x, low) for x, low, _ in reversed(whole)]
    colour = f"var(--c{k % NUM_COLOURS})"
    if len(whole) == 1:  # a band of one point has no width
        [(x, top)], [(_, bottom)] = there, back
        return (
            f'<path class="whisker" stroke="{colour}" d="M{x:.1f} {top:.1f}V{bottom:.1f}M{x - 4:.1f} {top:.1f}h8'
            f'M{x - 4:.1f} {bottom:.1f}h8"/>'
        )
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in there + back)
    return f'<polygon class="band" fill="{colour}" points="{path}"/>' if whole else ""


def _marks(axes, marks):
    parts = []
    for place, text in marks:
        if axes.x0 <= place <= axes.x1:
            x, _ = axes.at(place, axes.y0)
            parts.append(
                f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
                f"<title>{escape(text)} begins</title></line>"
            )
    return "".join(parts)


def _thin(one):
    size = math.ceil(len(one.x) / POINTS_MAX)
    return one if size == 1 else Series(one.name, *(_means(column, size) for column in one[1:]))


def _means(values, size):
    """Return the mean of each `size` consecutive values, of those that are not None; for size 1 the values."""
    groups = [[v for v in values[i : i + size] if v is not None] for i in range(0, len(values), size)]
    return [sum(group) / len(group) if group else None for group in groups] if size > 1 else list(values)


def _short(value):
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    return f"{value:.4g}"


def _numbers(title, x_label, y_label, x, rows):
    """Return a <figure> with a table in place of a picture. rows: (name, number, low or None, high or None)."""
    cells = []
    for name, number, *ends in rows:
        bounds = ", ".join("-" if end is None else _rounded(end) for end in ends)
        interval = "" if ends == [None, None] else f"[{bounds}]"
        cells.append(f"<tr><td>{escape(name)}</td><td>{_rounded(number)}</td><td>{interval}</td></tr>")
    note = f"{y_label}, at {x_label} {_short(x)}; a curve needs two points"
    return _figure(title, {}, f"<table>{''.join(cells)}</table><small>{escape(note)}</small>", "numbers")


def _rounded(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _svg(title, body):
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg>'


def figure(title: str, body: str, names: dict[int, str]) -> str:
    """Return a <figure> of what `plot` or `bars` returned."""
    return _figure(title, names, _svg(title, body))


def _figure(title, names, content, kind="chart"):
    legend = "".join(
        f'<span><i style="background:var(--c{k % NUM_COLOURS})"></i>{escape(name)}</span>'
        for k, name in names.items()
        if len(names) > 1
    )
    head = f'<figcaption>{escape(title)}<div class="legend">{legend}</div></figcaption>'
    return f'<figure class="{kind}">{head}{content}</figure>'
