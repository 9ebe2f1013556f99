"""The page of `az_mpi web` in a browser: the keyboard's focus, boards with pieces, and who has won."""

import json
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
        game.is_analysing, game.humans = False, set(range(game.session.game.num_players))
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


def test_the_error_that_the_server_is_gone_goes_once_it_answers_again(browser, opened):
    game = opened("tictactoe", humans=(0, 1))
    for shown, kept in (("another error", "another error"), ("az_mpi web has ended, or cannot be reached", "")):
        browser.run(f"$('error').textContent = {json.dumps(shown)}")
        assert game.ask("move", next(iter(game.session.legal()))) is None
        browser.wait(f"state.ply === {len(game.session.actions)}")
        assert browser.run("$('error').textContent") == kept


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


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll('{selector}')].map((one) => one.textContent)")


def test_one_player_slides_tiles_by_the_arrows_and_sees_the_score_once(browser, opened):
    game = opened("2048(size=3)")
    assert browser.run("state.legal.every((one) => !one.to && !one.from)")
    assert texts(browser, "#buttons button") == browser.run("state.legal.map((one) => one.move)")
    assert browser.run("[$('turn').hidden, $('beside').textContent]") == [True, ""]
    assert texts(browser, "#humans option") == ["yes", "no, the network plays"]
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown") * 2:
        ply, word = browser.run("state.ply"), key[5:].lower()
        is_legal = word in browser.run("state.legal.map((one) => one.move)")
        press(browser, key)
        if is_legal:
            browser.wait(f"state.ply === {ply + 2}")
            assert browser.run(f"state.moves[{ply}]") == word
    assert browser.run("state.ply") > 2
    tiles = [text for row in game.session.game.board(game.session.state).symbols for text in row if text != " "]
    assert texts(browser, "[data-cell] text.kind") == tiles
    assert browser.run("document.querySelectorAll('rect.tile').length") == len(tiles)
    drawn = game.session.game.outcome_to_text(game.session.states[-2], game.session.actions[-1])
    points = f"{int(game.session.score):,}"
    assert browser.run("$('status').textContent") == f"Drawn: {drawn}. Your move. Points: {points}."


def test_arrows_at_the_end_of_a_game_of_slides_take_no_move_back(browser, opened):
    game = opened("2048(size=2)")
    for _ in range(200):
        legal = browser.run("state.legal.map((one) => one.move)")
        if not legal:
            break
        ply = browser.run("state.ply")
        press(browser, f"Arrow{legal[0].capitalize()}")
        browser.wait(f"state.ply > {ply}")
    ply = browser.run("state.ply")
    press(browser, "ArrowLeft")
    assert browser.run("[state.over, state.ply]") == [True, ply]
    assert browser.run("$('status').textContent").endswith(f"The game is over. Points: {int(game.session.score):,}.")


def test_seats_of_three_players_show_their_pieces_and_the_end_says_who_won(browser, opened):
    opened("mnk(m=4,n=4,k=3,players=3)", "a1 a2 a3 b1 b2 b3", humans=(0, 1, 2))
    pieces = "[...document.querySelectorAll('#seats button')].map((one) => one.querySelector('svg').innerHTML)"
    on_board = (
        "['a1', 'a2', 'a3'].map((_, k) => drawn.cells.get(String([3 - k, 0])).group.querySelector('circle, polygon'))"
    )
    assert browser.run(f'{pieces}.map((one) => /class="(p\\d)"/.exec(one)[1])') == ["p0", "p1", "p2"]
    assert browser.run(f"{on_board}.map((one) => one.getAttribute('class'))") == ["p0", "p1", "p2"]
    assert texts(browser, "#seats button") == ["player 1", "player 2", "player 3"]
    assert browser.run("[$('bar').hidden, $('status').textContent]") == [True, "Player 1 is to move: you."]
    click(browser, "3,2")
    browser.wait("state.over")
    results = "player 1 +1.00, player 2 -0.50, player 3 -0.50"
    for humans, said in (((0, 1, 2), ""), ((0,), "You won. "), ((2,), "You lost. ")):
        browser.run(f"ask('humans', {list(humans)})")
        browser.wait(f"state.humans.join() === '{','.join(map(str, humans))}'")
        assert browser.run("$('status').textContent") == f"{said}Player 1 has won ({results})."
    assert browser.run("$('value').textContent") == f"results: {results}, from -1 (lost) to +1 (won)"


def test_moves_of_two_dice_are_buttons_each_once_with_the_points_they_name(browser, opened):
    pytest.importorskip("pyspiel")
    opened("openspiel:backgammon", humans=(0, 1))
    words = browser.run("state.legal.map((one) => one.move)")
    buttons = texts(browser, "#buttons button")
    assert len(buttons) == len({word.partition("#")[0] for word in words}) == len(set(buttons)) < len(words)
    assert browser.run("document.querySelectorAll('.can').length") == 0
    named = {number for name in texts(browser, "text.name") for number in name.split("/")}
    assert named - {""} == {str(point) for point in range(1, 25)}
    assert {number for word in buttons for number in word.replace("_", "/").split("/")} <= named
    assert browser.run("$('status').textContent").startswith("Drawn: roll ")
    browser.run("$('buttons').querySelector('button').click()")
    browser.wait("state.ply === 3")
    assert browser.run("$('beside').textContent").startswith("dice ")


def test_stored_games_are_listed_with_the_score_of_one_player_and_a_result_of_several(browser, opened):
    for name, score, said in (
        ("2048(size=3)", 1234.0, "points: 1,234"),
        ("mnk(m=4,n=4,k=3,players=3)", None, "player 1 -0.50"),
    ):
        opened(name)
        one = {"id": "7", "iteration": 2, "length": 5, "outcome": -0.5, "score": score}
        browser.run(f"show({{...state, results: {{games: [{json.dumps(one)}]}}}})")
        assert texts(browser, "#games td") == ["look", "iteration 2", "5 moves", said]
