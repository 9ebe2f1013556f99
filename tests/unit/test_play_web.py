"""python -m az_mpi web: the game behind the page, and who may ask it."""

import http.client
import json
import socket
import struct
import threading
import time

import pytest
from helpers import loaded_player, make_config, make_run, play_games

from az_mpi import games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.play import web_game, web_server
from az_mpi.play.web_game import WebGame
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session
from az_mpi.selfplay.player import Player
from az_mpi.storage import segment


@pytest.fixture
def began(monkeypatch):
    """A function that starts a game, with a network that thinks all moves alike and plays at once."""
    monkeypatch.setattr(web_game, "PACE_S", 0.0)
    begun = []

    def begin(name="connect4", requests=None, simulations=30, thinks=True):
        about = {"run": "a run", "checkpoints": []}
        game = WebGame(lambda _: Session(loaded_player(name)), "newest", Limit(simulations), about, requests or {})
        if not thinks:
            game.is_analysing, game.humans = False, {0, 1}
        begun.append(game)
        game.start()
        return game

    yield begin
    for game in begun:
        game.close()
        game.join(10)
        assert not game.is_alive()


def wait_for(game, condition):
    """Return the first state that meets a condition."""
    end, state = time.monotonic() + 60, game.state(0, 1)
    while not condition(state):
        assert time.monotonic() < end, state
        state = game.state(state["version"], 1)
    return state


def test_the_network_answers_a_move(began):
    game = began()
    assert game.state(0, 5)["to_play"] == 0 and game.ask("move", "4") is None
    state = wait_for(game, lambda state: state["ply"] == 2)
    assert state["moves"][0] == "4" and state["to_play"] == 0 and len(state["board"]["last"]) == 1
    assert [sum(row.count(player) for row in state["board"]["players"]) for player in (0, 1)] == [1, 1]


def test_the_state_shows_the_analysis_during_the_search(began):
    game = began("tictactoe")
    for move in ("a1", "b1", "a2", "b2"):
        game.ask("humans", [0, 1])
        assert game.ask("move", move) is None
    state = wait_for(game, lambda state: state["analysis"] and state["analysis"][0]["exact"])
    best = state["analysis"][0]
    assert (best["move"], best["value"], best["line"]) == ("a3", 1.0, ["a3"]) and state["values"][-1] == (4, 1.0)
    time.sleep(0.5)
    version = game.state(0, 0)["version"]
    assert game.state(version, 0.5)["version"] == version  # nothing is left to think about
    assert game.ask("move", "c3") is None


def test_wrong_moves_and_requests_are_reported_and_change_nothing(began):
    game = began()
    assert "legal are" in game.ask("move", "9") and "unknown request" in game.ask("no", 1)
    assert "Error" in game.ask("goto", "x") and game.state(0, 5)["ply"] == 0


def test_going_back_keeps_the_game_until_another_move_is_made(began):
    game = began()
    game.ask("humans", [0, 1])
    for move in "4453":
        assert game.ask("move", move) is None
    game.ask("goto", 1)
    state = wait_for(game, lambda state: state["ply"] == 1)
    assert state["moves"] == list("4453")
    game.ask("goto", 3)
    assert wait_for(game, lambda state: state["ply"] == 3)["moves"] == list("4453")
    game.ask("goto", 2)
    game.ask("move", "7")
    assert wait_for(game, lambda state: state["ply"] == 3)["moves"] == list("447")
    game.ask("new")
    assert wait_for(game, lambda state: state["ply"] == 0)["moves"] == []


def test_the_network_answers_a_move_that_is_made_again(began):
    game = began()
    for _ in range(2):
        assert game.ask("goto", 0) is None and game.ask("move", "4") is None
        state = wait_for(game, lambda state: state["ply"] == 2)
        assert state["moves"][0] == "4" and len(state["moves"]) == 2


def test_the_network_plays_both_sides_to_the_end(began):
    game = began("tictactoe")
    game.ask("humans", [])
    state = wait_for(game, lambda state: state["over"])
    assert state["legal"] == [] and state["result"] in (-1, 0, 1) and len(state["moves"]) == state["ply"] >= 5


@pytest.mark.parametrize(
    "name, clicks, buttons",
    [
        ("connect4", 7, []),
        ("othello", 4, []),
        ("go(size=5,komi=7)", 25, ["pass"]),
        ("hex(size=4)", 16, []),
        ("breakthrough(rows=6,columns=6)", 16, []),
    ],
)
def test_each_legal_move_is_a_cell_or_a_button(began, name, clicks, buttons):
    state = began(name).state(0, 5)
    cells = [(str(move["from"]), str(move["to"])) for move in state["legal"] if move["to"]]
    assert len(cells) == len(set(cells)) == clicks
    assert [move["move"] for move in state["legal"] if not move["to"]] == buttons
    if name.startswith("breakthrough"):
        assert all(state["board"]["players"][move["from"][0]][move["from"][1]] == 0 for move in state["legal"])


def legal_after(began, name, *words):
    """Return what the state says of each legal move after these: {word: (from, to)}, cells as (row, column)."""
    game = began(name, thinks=False)
    for word in words:
        assert game.ask("move", word) is None
    state = wait_for(game, lambda state: state["ply"] == len(words))
    return state, {row["move"]: (row["from"], row["to"]) for row in state["legal"]}


def test_moves_of_chess_are_clicks_from_and_to_with_castling_and_promotion(began):
    pytest.importorskip("pyspiel")
    state, legal = legal_after(began, "openspiel:chess", *"a4 b5 axb5 a6 bxa6 Nc6 a7 h6 Nf3 g6 g3 g5 Bg2 Rb8".split())
    assert legal["O-O"] == ((7, 4), (7, 6)) and legal["Nxg5"] == ((5, 5), (3, 6))
    assert [legal[f"axb8={piece}"] for piece in "QRBN"] == [((1, 0), (0, 1))] * 4
    assert all(None not in cells for cells in legal.values())
    board = state["board"]
    assert (board["last"], board["left"], board["light"]) == (((0, 1),), ((0, 0),), 0)
    assert not state["cut"] and {"Q", "q"} <= state["board"]["figures"].keys()


def test_moves_of_other_boards_are_clicks_too(began):
    """A piece of Amazons is taken up, put down and shoots; a cell of Pentago has eight moves; a checker jumps."""
    pytest.importorskip("pyspiel")
    taken = "openspiel:amazons", "X_From_(7,_1)"
    assert legal_after(began, taken[0])[1][taken[1]] == (None, (6, 0))
    assert legal_after(began, *taken)[1]["X_To_(6,_1)"] == (None, (5, 0))
    assert legal_after(began, *taken, "X_To_(6,_1)")[1]["X_Shoot:_(7,_1)"] == (None, (6, 0))
    _, legal = legal_after(began, "openspiel:pentago", "a1t")
    assert all(legal[word] == (None, (2, 2)) for word in ("c3s", "c3t", "c3z"))
    _, legal = legal_after(began, "openspiel:checkers", "a3b4", "d6c5")
    assert legal["b4d6"] == ((4, 1), (2, 3))
    assert legal_after(began, "openspiel:go(board_size=5)")[1]["B_PASS"] == (None, None)


def test_the_state_says_that_a_game_was_cut_and_which_cells_won(began):
    state, _ = legal_after(began, "go(size=3,komi=0,max_plies=3)", "B2", "pass", "A1")
    assert state["over"] and state["cut"]
    state, _ = legal_after(began, "go(size=3,komi=0,max_plies=3)", "pass", "pass")
    assert state["over"] and not state["cut"]
    state, _ = legal_after(began, "tictactoe", "a1", "a2", "b1", "b2", "c1")
    assert state["board"]["won"] == ((2, 0), (2, 1), (2, 2)) and not state["cut"]
    assert state["result"] == 1


@pytest.mark.parametrize("stone", ["b3", "b2"])  # on the long diagonal a stone stays where it is
def test_a_swap_in_hex_is_a_button(began, stone):
    game = began("hex(size=4,swap=True)")
    game.ask("humans", [0, 1])
    game.ask("move", stone)
    state = wait_for(game, lambda state: state["ply"] == 1)
    assert [move["move"] for move in state["legal"] if not move["to"]] == ["swap"]
    assert sum(bool(move["to"]) for move in state["legal"]) == 15


def test_results_of_requests_are_shown_until_the_position_changes(began):
    game = began(requests={"about": lambda game, what: [what, len(game.session.actions)]})
    assert game.ask("about", "x") is None
    assert wait_for(game, lambda state: state["results"])["results"] == {"about": ["x", 0]}
    game.ask("move", "4")
    assert wait_for(game, lambda state: state["ply"] > 0)["results"] == {}


@pytest.fixture
def server(began):
    server = web_server.Server(("127.0.0.1", 0))
    server.game = began()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def call(server, method, path, body=None, **headers):
    """Return (status, text, headers) of an answer."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers
    connection.close()
    return found


def test_the_server_answers_the_page_and_its_requests(server):
    status, page, headers = call(server, "GET", f"/?token={server.token}")
    assert status == 200 and "<title>az_mpi" in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    nonce = page.split('nonce="')[1].split('"')[0]
    assert f"'nonce-{nonce}'" in headers["Content-Security-Policy"] and len(nonce) > 10
    status, state, _ = call(server, "GET", "/state?version=0", X_Token=server.token)
    assert status == 200 and json.loads(state)["game"] == "connect4"
    asked = json.dumps({"what": "move", "argument": "4"})
    assert "no legal move" in call(server, "POST", "/ask", asked.replace("4", "x"), X_Token=server.token)[1]
    assert call(server, "POST", "/ask", asked, X_Token=server.token)[:2] == (200, '{"error": null}')


def test_requests_without_the_token_or_of_another_site_are_refused(server):
    asked, ours = json.dumps({"what": "move", "argument": "4"}), server.origin
    for path in ("/", "/?token=x", "/?token="):
        assert call(server, "GET", path)[0] == 403
    assert call(server, "GET", "/state?version=0")[0] == call(server, "POST", "/ask", asked)[0] == 403
    for headers in (
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Host": "example.org"},
        {"Host": f"example.org:{server.server_address[1]}"},
    ):
        assert call(server, "POST", "/ask", asked, X_Token=server.token, **headers)[0] == 403
        assert call(server, "GET", f"/?token={server.token}", **headers)[0] == 403
    assert server.game.state(0, 1)["ply"] == 0
    assert call(server, "POST", "/ask", asked, X_Token=server.token, Origin=ours)[0] == 200


def test_requests_of_nonsense_are_refused(server):
    for body in ("", "[]", "{", "{}", '"x"', "[" * 60_000, '{"what": []}'):
        status, text, _ = call(server, "POST", "/ask", body, X_Token=server.token)
        assert status == 400 or "unknown request" in text
    assert call(server, "POST", "/ask", "x" * 70_000, X_Token=server.token)[0] == 400
    assert call(server, "POST", "/other", "{}", X_Token=server.token)[0] == 400
    assert call(server, "GET", "/other")[0] == 404
    assert call(server, "GET", "/state?version=x", X_Token=server.token)[0] == 200
    for path in ("HTTP://[", "/state?version=" + "9" * 5000):
        assert call(server, "GET", path, X_Token=server.token)[0] == 400
    assert call(server, "POST", "/ask", "{}", X_Token=server.token, Content_Length="9" * 5000)[0] == 400


def test_a_browser_leaves_out_port_80():
    ours = {"127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"}
    assert web_server.hosts_of("127.0.0.1", 80) == ours
    assert web_server.hosts_of("10.0.0.1", 8080) == {"10.0.0.1:8080"}


def test_strangers_who_connect_and_say_nothing_or_half_a_request_do_not_keep_the_user_out(server, capfd):
    strangers = []
    for k in range(3 * web_server.CONNECTIONS_MAX):
        strangers.append(socket.create_connection(server.server_address[:2]))
        strangers[-1].sendall((b"", b"GET /state?ver", b"POST /ask HTTP/1.1\r\nContent-Length: 9\r\n\r\n")[k % 3])
        if k % 2:  # it breaks off: the server gets an error, not an end
            strangers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            strangers.pop().close()
    assert call(server, "GET", "/state?version=0", X_Token=server.token)[0] == 200
    assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) <= web_server.CONNECTIONS_MAX + 8
    for one in strangers:
        one.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_connection_that_has_shown_the_token_stays_while_strangers_come(server):
    user = http.client.HTTPConnection(*server.server_address[:2], timeout=30)
    strangers = []
    for _ in range(3):
        user.request("GET", "/state?version=0", None, {"X-Token": server.token})
        assert user.getresponse().read()
        user.auto_open = False  # from now on only the connection that is there
        for _ in range(web_server.CONNECTIONS_MAX):
            strangers.append(socket.create_connection(server.server_address[:2]))
    user.close()
    for one in strangers:
        one.close()


def test_the_page_shows_games_and_checkpoints_of_a_run(tmp_path):
    """The stored games of an old run, one of them opened; what its checkpoints would play."""
    run = make_run(tmp_path / "run", checkpoints=(1, 2, 3))
    game = web_server.make_game(run, "newest", 10)
    game.start()
    try:
        state = game.state(0, 10)
        assert state["checkpoints"] == ["newest", "best", "000001", "000002", "000003"]
        assert game.ask("compare") is None
        rows = wait_for(game, lambda state: "compare" in state["results"])["results"]["compare"]
        assert [row["checkpoint"] for row in rows] == ["000001", "000002", "000003"]
        assert all(0 < row["share"] <= 1 and -1 <= row["value"] <= 1 for row in rows)
        assert game.ask("games") is None
        assert "Refusal" in game.ask("checkpoint", "000009") and game.ask("checkpoint", "000002") is None
        assert wait_for(game, lambda state: state["checkpoint"] == "000002")
    finally:
        game.close()


def test_a_move_in_the_networks_turn_is_refused(began):
    game = began(simulations=10**6)
    assert game.ask("move", "4") is None
    assert game.ask("move", "4") == "it is the network's turn" and game.state(0, 1)["ply"] == 1


def test_the_network_is_as_strong_as_chosen_however_long_a_person_thinks(began, monkeypatch):
    game, searched = began(simulations=5), []
    wait_for(game, lambda state: state["simulations"] > 2000)
    best = game.session.best
    monkeypatch.setattr(game.session, "best", lambda: searched.append(game.session.simulations) or best())
    assert game.ask("move", "4") is None
    wait_for(game, lambda state: state["ply"] == 2)
    assert len(searched) == 1 and searched[0] <= 5
    wait_for(game, lambda state: state["ply"] == 2 and state["simulations"] > 2000)
    game.ask("humans", [1])  # the network's turn now
    wait_for(game, lambda state: state["ply"] == 3)
    assert len(searched) == 2 and searched[1] <= 5


def run_with_games(folder, num, **selfplay):
    """Make a run of tic-tac-toe with stored games; return (its folder, the games)."""
    run, rules = make_run(folder), games.make("tictactoe")
    config = make_config(search={"simulations": 4}, selfplay={"parallel_games": num, **selfplay})
    record = play_games(Player(config, rules, UniformEvaluator(rules), 0), range(num))
    (run / "games").mkdir()
    segment.write(run / "games", 0, rules, record, {})
    return run, record


def test_the_network_does_not_play_in_a_stored_game_that_was_cut(tmp_path):
    run, record = run_with_games(tmp_path / "run", 2, max_plies=3)
    game = web_server.make_game(run, "newest", 10)
    game.start()
    try:
        assert game.ask("open", str(record.games["id"][0])) is None and game.ask("goto", 3) is None
        wait_for(game, lambda state: state["ply"] == 3 and state["to_play"] == 1)  # the network's side
        time.sleep(1.0)
        state = game.state(0, 1)
        assert len(state["moves"]) == state["ply"] == 3 and state["stored"]
    finally:
        game.close()


def test_a_stored_game_is_shown_from_where_it_began(tmp_path):
    """Three random moves into tic-tac-toe; another checkpoint takes the position over."""
    rules, (run, record) = games.make("tictactoe"), run_with_games(tmp_path / "run", 9, random_plies=3)
    rows = next(
        rows
        for number in record.games["id"]
        if (rows := record.positions[record.positions["game"] == number])["ply"][0] == 3
    )
    game = web_server.make_game(run, "newest", 10)
    game.start()
    try:
        assert game.ask("humans", [0, 1]) is None and game.ask("open", str(rows["game"][0])) is None
        state = wait_for(game, lambda state: len(state["moves"]) == len(rows))
        assert state["text"] == rules.show(rows["state"][0]) and state["ply"] == 0 and state["to_play"] == 1
        assert state["stored"]["num_before"] == 3
        for ply in range(len(rows)):
            assert game.ask("goto", ply) is None
            assert wait_for(game, lambda state, at=ply: state["ply"] == at)["text"] == rules.show(rows["state"][ply])
        assert game.ask("checkpoint", "000001") is None
        state = wait_for(game, lambda state: state["checkpoint"] == "000001")
        assert state["text"] == rules.show(rows["state"][-1])
    finally:
        game.close()
