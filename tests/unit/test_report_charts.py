"""The charts of a report: where points lie, bars, intervals, ticks and names."""

import re

import pytest
from pages import HOSTILE, Page, numbers

from az_mpi.report import chart
from az_mpi.report.chart import Series


def points(figure):
    [path] = re.findall(r'<polyline[^>]* points="([^"]*)"', figure)
    return [tuple(map(float, pair.split(","))) for pair in path.split()]


def test_points_lie_where_the_scales_by_hand_put_them():
    """The plot is 378 by 200 units, from (52, 210) to (430, 10); y grows upwards, from 0."""
    figure = chart.lines("t", "x", "y", [Series("a", [0, 5, 10], [0, 4, 2])])
    assert points(figure) == [(52.0, 210.0), (241.0, 10.0), (430.0, 110.0)]
    figure = chart.lines("t", "x", "y", [Series("a", [0, 10], [0.5, 2.0])], limits=(0, 1))
    assert points(figure) == [(52.0, 110.0), (430.0, 10.0)]  # what is beyond a limit is cut off


def test_stacked_bars_stand_on_each_other():
    figure = chart.stacked("t", "x", "y", [1, 2], {"a": [1.0, 3.0], "none": [0, 0], "b": [3.0, 1.0]})
    boxes = re.findall(r'<rect x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', figure)
    left, top, width, height = zip(*(map(float, box) for box in boxes))
    assert left == (52.0, 262.0, 52.0, 262.0) and set(width) == {168.0}
    assert height == (50.0, 150.0, 150.0, 50.0) and top == (160.0, 60.0, 10.0, 10.0)
    assert ">none<" not in figure


def test_a_chart_of_one_point_is_a_table_of_its_number():
    lone = Series("a", [2, 3], [None, 0.25], [None, 0.125], [None, 1234.5])
    assert numbers(chart.lines("t", "x", "y", [lone]), "t") == [["a", "0.25", "[0.125, 1,234]"]]
    assert numbers(chart.lines("t", "x", "y", [lone, Series("b", [3], [2])]), "t")[1] == ["b", "2", ""]
    bars = chart.stacked("t", "x", "y", [1], {"a": [1.5], "b": [3.0]})
    assert numbers(bars, "t") == [["a", "1.5", ""], ["b", "3", ""]]


def test_a_line_of_one_point_beside_longer_lines_has_its_interval():
    """A plot of 378 by 200 units from (52, 10), as above: 1 lies at its middle, 0 and 2 at its ends."""
    lone = Series("b", [2], [1.0], [0.0], [2.0])
    figure = chart.lines("t", "x", "y", [Series("a", [1, 2, 3], [0, 2, 1]), lone])
    [whisker] = re.findall(r'class="whisker"[^>]* d="([^"]*)"', figure)
    assert whisker.startswith("M241.0 10.0V210.0")


def test_long_lines_show_means_of_neighbouring_points():
    x = list(range(1200))
    figure = chart.lines("t", "x", "y", [Series("a", x, [float(i % 3) for i in x])])
    assert len(points(figure)) == 400 and len({y for _, y in points(figure)}) == 1  # each the mean of 0, 1, 2
    bars = chart.stacked("t", "x", "y", x, {"a": [1.0] * 1200})
    assert bars.count("<rect") == 120


def test_a_missing_bound_leaves_a_gap_in_the_band_and_a_missing_point_none_in_the_line():
    series = Series("a", [1, 2, 3, 4], [1, None, 3, 4], [0, None, 2, 3], [2, None, None, 5])
    figure = chart.lines("t", "x", "y", [series])
    assert len(points(figure)) == 3
    [band] = re.findall(r'<polygon[^>]* points="([^"]*)"', figure)
    assert len(band.split()) == 4  # of 1 and 4


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-200, 600, [-200, 0, 200, 400, 600]),
        (3, 17, [5, 10, 15]),
        (0.5, 1.5, [0.6, 0.8, 1.0, 1.2, 1.4]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert chart.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("last", [10, 200, 1000, 12_500, 40_000, 1_250_000])
def test_numbers_at_the_axes_lie_within_the_picture(last):
    """At 7 units a digit, which is what the widest of the page's fonts takes."""
    figure = chart.lines("t", "x", "y", [Series("a", [0, last / 2, last], [0, 4, 2])])
    found = re.findall(r'<text x="([^"]*)" y="[^"]*" text-anchor="(middle|end)">([^<]*)</text>', figure)
    assert [text for _, _, text in found].count("0") == 2
    for x, anchor, text in found:
        width = 7 * len(text) if re.fullmatch("[-0-9.kM]+", text) else 0
        left = float(x) - width / (2 if anchor == "middle" else 1)
        assert left >= 0 and left + width <= chart.WIDTH, text


def test_names_in_charts_are_escaped():
    figure = chart.lines(HOSTILE, HOSTILE, HOSTILE, [Series(HOSTILE, [1, 2], [1, 2])] * 2, [(1.5, HOSTILE)])
    assert "<script" not in figure
    assert Page(figure).texts.count(HOSTILE) == 5  # title, two names, two axes; points and marks say more
