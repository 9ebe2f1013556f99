"""Pages of HTML, and the numbers in them, as tests read them."""

import re
from html.parser import HTMLParser

HOSTILE = "<script>alert('&\"')</script>"


class Page(HTMLParser):
    """A page's `tags` as (name, {attribute: value}), its `texts`, the rows of its `tables`. Unbalanced tags fail."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.tables, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":  # which has no end
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def table(self, *head):
        """Return the rows below a heading that begins with `head`."""
        [rows] = [table[1:] for table in self.tables if table[0][: len(head)] == list(head)]
        return rows


def numbers(text, title):
    """Return the rows of the table that a page shows in place of the chart whose title begins so."""
    [figure] = [part for part in re.findall("<figure.*?</figure>", text) if f"<figcaption>{title}" in part]
    assert "<svg" not in figure
    [table] = Page(figure).tables
    return table
