"""The page of `az_mpi web` in a browser: the keyboard's focus, boards with pieces, and who has won."""

import threading
from types import SimpleNamespace

import pytest
from browser import Browser, needs_browser
from helpers import loaded_player

from az_mpi.play import web_game, web_server
from az_mpi.play.web_game import WebGame
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

pytestmark = [needs_browser, pytest.mark.process]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser
        assert [problem for problem in browser.problems if isinstance(problem, dict)] == []  # errors of the page


@pytest.fixture
def opened(browser, monkeypatch):
    """A function that opens the page of a game, after some moves; people play `humans`."""
    monkeypatch.setattr(web_game, "PACE_S", 0.0)
    servers = []

    def open_page(name, moves="", humans=(0,)):
        game = WebGame(lambda _: Session(loaded_player(name)), "newest", Limit(1), {"run": "x", "checkpoints": []}, {})
        game.is_analysing, game.humans = False, {0, 1}
        server = web_server.Server(("127.0.0.1", 0))
        server.game = game
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        servers.append(SimpleNamespace(game=game, server=server, thread=thread))
        game.start()
        thread.start()
        for word in moves.split():
            assert game.ask("move", word) is None
        game.ask("humans", list(humans))
        browser.call("Page.navigate", url=server.url)
        browser.wait("typeof drawn === 'object' && drawn && !busy")  # its script has run
        browser.wait(f"state.ply >= {len(moves.split())}")
        return game

    yield open_page
    browser.call("Page.navigate", url="about:blank")
    for one in servers:
        one.game.close()
        one.server.shutdown()
        one.thread.join()
        one.server.server_close()


def press(browser, key):
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)


def middle(browser, cell):
    script = """(() => { const box = drawn.cells.get(CELL).group.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2]; })()"""
    return browser.run(script.replace("CELL", repr(cell)))


def click(browser, cell):
    x, y = middle(browser, cell)
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


FOCUS = "document.activeElement.dataset.cell"


def test_the_focus_stays_on_the_cell_after_a_move_and_arrows_move_it(browser, opened):
    """Arrows lead to cells that cannot be clicked too. Nothing is undone."""
    opened("othello(size=4)")
    cell = browser.run("String(state.legal[0].to)")
    browser.run(f"drawn.cells.get('{cell}').group.focus()")
    press(browser, "Enter")
    browser.wait("state.ply === 2 && mine()")
    assert browser.run(FOCUS) == cell
    row, column = map(int, cell.split(","))
    for key, (down, right) in (("ArrowDown", (1, 0)), ("ArrowRight", (0, 1)), ("ArrowUp", (-1, 0))):
        press(browser, key)
        if 0 <= row + down < 4 and 0 <= column + right < 4:
            row, column = row + down, column + right
        assert browser.run(FOCUS) == f"{row},{column}"
    assert browser.run("[state.ply, document.querySelectorAll('[tabindex=\"0\"]').length]") == [2, 1]


def test_the_focus_of_a_button_that_disappears_goes_to_the_board(browser, opened):
    opened("go(size=3,komi=0)", humans=(0, 1))
    browser.run("$('buttons').querySelector('button').focus()")
    press(browser, "Enter")
    browser.run("$('buttons').querySelector('button').click()")
    browser.wait("state.ply === 1")
    browser.run("$('buttons').querySelector('button').focus(), $('buttons').querySelector('button').click()")
    browser.wait("state.over")
    assert browser.run(f"Boolean({FOCUS})") and not browser.run("document.querySelector('#buttons button')")


def test_the_frame_of_a_cell_lies_within_it(browser, opened):
    """Neighbours, which are drawn later, cannot cover it then."""
    for name in ("hex(size=3)", "tictactoe"):
        opened(name)
        for margins in browser.run("""[...drawn.cells.values()].map(({ group }) => {
            const [outer, inner] = [".cell", ".frame"].map((name) => group.querySelector(name).getBBox());
            return [inner.x - outer.x, inner.y - outer.y, outer.x + outer.width - inner.x - inner.width]; })"""):
            assert min(margins) >= 0.045 - 0.001  # half of the frame's stroke


def test_the_page_marks_the_winning_line_and_says_who_won(browser, opened):
    opened("tictactoe", "a1 a2 b1 b2 c1", humans=(0,))
    assert browser.run("[...document.querySelectorAll('.won')].map((one) => one.dataset.cell)") == ["2,0", "2,1", "2,2"]
    for humans, said in (
        ([0], "You won. The first player has won."),
        ([1], "You lost. The first player has won."),
        ([0, 1], "The first player has won."),
        ([], "The first player has won."),
    ):
        browser.run(f"ask('humans', {humans})")
        browser.wait(f"state.humans.join() === '{','.join(map(str, humans))}'")
        assert browser.run("$('status').textContent") == said


def test_hex_shows_whose_edges_are_which(browser, opened):
    opened("hex(size=3)", "a1 b2")
    edges = browser.run(
        "[...document.querySelectorAll('.border')].map((one) => {const box = one.getBBox();"
        " return [one.getAttribute('class'), box.width > box.height * 1.5]})"
    )
    assert [kind for kind, _ in edges] == ["border p0", "border p0", "border p1", "border p1"]
    assert [is_flat for _, is_flat in edges] == [True, True, False, False]
    assert browser.run(
        "[0, 1].map((player) => getComputedStyle(document.querySelector('circle.p' + player)).fill"
        " === getComputedStyle(document.querySelector('.border.p' + player)).stroke)"
    ) == [True, True]


def test_chess_is_played_by_clicks_with_a_choice_of_promotion(browser, opened):
    pytest.importorskip("pyspiel")
    opened("openspiel:chess", "a4 b5 axb5 a6 bxa6 Nc6 a7 h6 Nf3 g6 g3 g5 Bg2 Rb8", humans=(0, 1))
    assert browser.run("document.querySelectorAll('[data-cell] path.p1, [data-cell] path.p0').length") == 30
    assert browser.run("[...document.querySelectorAll('.moved')].map((one) => one.dataset.cell)") == ["0,0", "0,1"]
    click(browser, "1,0")
    browser.wait("origin")
    targets = "[...document.querySelectorAll('.target')].map((one) => one.closest('g[data-cell]').dataset.cell)"
    assert browser.run(targets) == ["0,0", "0,1"]
    click(browser, "0,1")
    assert browser.run("[...$('choice').children].map((one) => one.title)") == ["axb8=Q", "axb8=R", "axb8=B", "axb8=N"]
    press(browser, "Escape")
    assert browser.run("[$('choice').hidden, state.ply]") == [True, 14]
    click(browser, "1,0")
    click(browser, "0,1")
    browser.run("$('choice').children[3].click()")
    browser.wait("state.ply === 15")
    assert browser.run("state.moves[14]") == "axb8=N"
    browser.run("ask('goto', 14)")
    browser.wait("state.ply === 14")
    for cell in ("7,4", "7,6"):
        click(browser, cell)
    browser.wait("state.ply === 15")
    assert browser.run("[state.moves[14], $('status').textContent]") == ["O-O", "Black is to move: you."]
    top, bottom = middle(browser, "0,0"), middle(browser, "7,7")
    browser.run("ask('humans', [1])")
    browser.wait("state.humans.join() === '1'")
    turned = [middle(browser, cell) for cell in ("7,7", "0,0")]
    assert turned == [pytest.approx(top, abs=1), pytest.approx(bottom, abs=1)]
