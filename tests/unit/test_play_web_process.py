"""python -m az_mpi web as its user sees it: a process that prints an address, a page in a browser, and Ctrl-C."""

import json
import re
import signal
import sys
import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import Browser, needs_browser
from helpers import engine_process, make_run

pytestmark = pytest.mark.process


@pytest.fixture
def page(tmp_path):
    """Return (the process, the address of its page)."""
    process = engine_process(
        sys.executable, "-m", "az_mpi", "web", make_run(tmp_path / "run", "hex(size=3)"), "--simulations", 4
    )
    try:
        yield process, re.search(r"http\S+", process.stdout.readline()).group()
    finally:
        process.kill()
        process.communicate()


def state_of(url):
    token = parse_qs(urlsplit(url).query)["token"][0]
    request = urllib.request.Request(
        urlsplit(url)._replace(path="/state", query="version=0").geturl(), headers={"X-Token": token}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_ctrl_c_ends_az_mpi_web(page):
    process, url = page
    assert state_of(url)["ply"] == 0
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


@needs_browser
def test_a_browser_draws_the_board(page, tmp_path):
    with Browser(tmp_path / "browser") as browser:
        browser.call("Page.navigate", url=page[1])
        browser.wait("document.querySelectorAll('g.can').length == 9")
        assert "hex(size=3)" in browser.run("document.querySelector('h1').textContent")
        own = urlsplit(page[1]).netloc
        assert {urlsplit(url).netloc for url in browser.problems} == {own}  # its requests; an error would be a dict
