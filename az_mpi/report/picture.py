"""Several plots as one picture, an SVG file of its own for slides and documents.

Its colours and sizes are within it, as numbers, since few programs besides browsers know the variables of style sheets.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from az_mpi.report import chart

HEAD, TITLE_ROW, NAME_ROW = 28, 22, 18  # heights: of the heading, of a plot's title, of the name of a line
APART = 16  # between two plots
STYLED = ("svg text", ".grid", ".axis", ".line", ".band", ".whisker")  # what a plot has, of the rules in page.css
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


class Plot(NamedTuple):
    """A plot with its title. drawn: what `chart.plot` and `chart.bars` return; None if there is nothing to draw."""

    title: str
    drawn: tuple[str, dict[int, str]] | None


def picture(title: str, plots: Sequence[Plot]) -> str:
    """Return an SVG file that has the plots beside each other, with a title above them."""
    parts = [_plot(*plot) for plot in plots]
    step = chart.WIDTH + APART
    height = HEAD + max(height for _, height in parts)
    placed = [f'<g transform="translate({k * step} {HEAD})">{part}</g>' for k, (part, _) in enumerate(parts)]
    width = len(parts) * step - APART
    title = escape(title)
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}"><title>{title}</title><style>{_style()}</style>'
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>'
        f'<text x="{width / 2}" y="18" text-anchor="middle" style="font-size:15px">{title}</text>'
        f"{''.join(placed)}</svg>"
    )
    colours = _colours()
    return re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], text)


def _plot(title, drawn):
    """Return (a plot with its title above and the names of its lines below, its height)."""
    head = f'<text x="{chart.LEFT}" y="14" style="font-size:13px;font-weight:600">{escape(title)}</text>'
    if drawn is None:
        return f'{head}<text x="{chart.LEFT}" y="{TITLE_ROW + 20}">nothing recorded</text>', TITLE_ROW + chart.HEIGHT
    body, names = drawn
    top = TITLE_ROW + chart.HEIGHT
    legend = [
        f'<rect x="{chart.LEFT}" y="{top + NAME_ROW * row}" width="11" height="11" rx="3" '
        f'fill="var(--c{colour % chart.NUM_COLOURS})"/>'
        f'<text x="{chart.LEFT + 16}" y="{top + NAME_ROW * row + 10}">{escape(name)}</text>'
        for row, (colour, name) in enumerate(names.items())
    ]
    content = f'{head}<g transform="translate(0 {TITLE_ROW})">{body}</g>{"".join(legend)}'
    return content, top + NAME_ROW * len(names)


def _page_css() -> str:
    return (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def _style() -> str:
    """Return the rules of page.css that a plot needs."""
    return "".join(line for line in _page_css().splitlines() if line.startswith(STYLED))


def _colours() -> dict[str, str]:
    """Return the page's colours on white paper, by the names of their variables."""
    on_white = _page_css().partition("@media")[0]
    return dict(re.findall(r"(--\w+): (#\w+)", on_white))
