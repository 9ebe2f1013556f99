"""python -m az_mpi export --to web: rules, network and search in JavaScript against those in Python, and the page."""

import json

import numpy as np
import pytest
import torch
from browser import Browser, needs_browser
from helpers import loaded_player, make_config, trained, untrained

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import BLOCKS
from az_mpi.export import export_command, standalone_page
from az_mpi.network import graph
from az_mpi.network.engines.torch_engine import TorchEngine
from az_mpi.player import trained_network
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.session import Session

pytestmark = [needs_browser, pytest.mark.process]

NETWORK = {"blocks": 2, "channels": 16}
NAMES = (
    "connect4",
    "tictactoe",
    "mnk(m=7,n=6,k=4)",
    "mnk(m=5,n=5,k=3,exact=True)",
    "othello(size=6)",
    "othello",
    "hex(size=5)",
    "hex(size=4,swap=True)",
    "breakthrough(rows=6,columns=5)",
    "breakthrough",
    "go(size=5,komi=0.5)",
    "go(size=3,komi=0,max_plies=60)",
    "go(size=9,komi=7)",
)
SMALL = (
    "connect4",
    "tictactoe",
    "othello(size=6)",
    "hex(size=4,swap=True)",
    "go(size=5,komi=7)",
    "breakthrough(rows=6,columns=5)",
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For networks as small as these; several threads wait for each other where there is other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser
        assert browser.problems == []


def found(game, heads=("policy", "value"), make=trained, simulations=40, seed=3, block="residual"):
    network = NETWORK | {"heads": list(heads), "block": block}
    config = make_config(game, network=network, search={"simulations": simulations})
    game = games.make(config.game)
    network = make(seed, config.network, game).eval()
    return trained_network.TrainedNetwork(config, game, network, 7)


def packed(network):
    return standalone_page.pack(network, *graph.operations(network.network))


def in_worker(browser, rules, script, **values):
    """Return what a function body returns that sees what the page's worker sees, and these values."""
    given = "".join(f"const {name} = {json.dumps(value)};" for name, value in values.items())
    body = f"{standalone_page.script(rules)}\n{given}\nreturn JSON.stringify((() => {{ {script} }})());"
    return json.loads(browser.run(f"(() => {{ {body} }})()"))


def random_game(game, rng):
    """Return the rows of a game of random moves: [action, state, …], where `action` led to the state; the first is the
    start."""
    states, rows, action = game.initial(1), [], None
    while True:
        ended, value = game.terminal(states)
        legal = np.flatnonzero(game.legal(states)[0]).tolist() if not ended[0] else []
        board = game.board(states[0])
        rows.append(
            {
                "action": action,
                "legal": legal,
                "words": [game.action_to_text(states[0], each) for each in legal],
                "result": float(value[0]) if ended[0] else None,
                "player": int(game.to_play(states)[0]),
                "players": board.players.tolist(),
                "columns": list(board.columns),
                "rows": list(board.rows),
                "shape": board.shape,
                "edges": list(board.edges),
                "won": [list(cell) for cell in board.won],
                "planes": game.planes(states)[0].reshape(-1).tolist(),
            }
        )
        if ended[0]:
            return rows
        action = int(rng.choice(legal))
        states = game.play(states, np.array([action]))


RULES = """
  const game = new GAMES[spec.rules](spec);
  return actions.map((moves) => {
    let state = game.initial();
    return [null, ...moves].map((action) => {
      if (action !== null) state = game.play(state, action);
      const result = game.result(state), legal = result === null ? game.legal(state) : [], board = game.board(state);
      return { action, legal, words: legal.map((each) => game.text(state, each)), result, player: state.player,
        players: board.players, columns: board.columns, rows: board.rows, shape: board.shape,
        edges: board.edges, won: board.won, planes: Array.from(game.planes(state)) };
    });
  });
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_in_javascript_are_those_in_python(browser, name):
    """Random games, move by move: legal moves and their names, the result, the board and the network's input."""
    game, rng = games.make(name), np.random.default_rng(5)
    expected = [random_game(game, rng) for _ in range(3 if game.max_plies > 100 else 12)]
    actions = [[row["action"] for row in rows[1:]] for rows in expected]
    spec = standalone_page.spec(game)
    rules = in_worker(browser, spec["rules"], RULES, spec=spec, actions=actions)
    for mine, theirs in zip(expected, rules):
        for ply, (row, other) in enumerate(zip(mine, theirs)):
            for key in row:
                assert other[key] == row[key], f"{name}, {key} after {actions[expected.index(mine)][:ply]}"


SEARCHES = """
  const game = new GAMES[packed.game.rules](packed.game);
  const bytes = Uint8Array.from(atob(packed.weights), (char) => char.charCodeAt(0));
  const network = new Network(packed.network, new Float32Array(bytes.buffer));
  const search = new Search(game, (state) => network.evaluate(game.planes(state)), packed.settings);
  return actions.map((moves) => {
    let state = game.initial();
    for (const action of moves) state = game.play(state, action);
    search.reset(state);
    while (search.simulations < simulations && !(search.root.visits && search.root.exact)) search.step();
    const { policy, value } = network.evaluate(game.planes(state));
    return { policy: Array.from(policy), value, action: search.choose(), actions: search.root.actions,
      counts: search.counts(), searched: search.value };
  });
"""


def openings(game, num, rng):
    """Return moves that lead to positions in which nobody can win at once, [[action]], and these states [num, S]."""
    found, states = [], []
    while len(found) < num:
        moves, state = [], game.initial(1)
        for _ in range(rng.integers(0, 6)):
            moves.append(int(rng.choice(np.flatnonzero(game.legal(state)[0]))))
            state = game.play(state, np.array(moves[-1:]))
        if not game.terminal(state)[0][0]:
            found.append(moves)
            states.append(state[0])
    return found, np.stack(states)


def player_of(network):
    return LoadedPlayer(network.game, TorchEngine(network.network, network.game, "fp32"), network.config.search)


@pytest.mark.parametrize("name", SMALL)
def test_searches_in_javascript_and_python_are_equal_visit_by_visit(browser, name):
    """A new network says 0 for all: every choice of the search is then a tie, or by exact numbers."""
    network, rng = found(name, make=untrained), np.random.default_rng(1)
    moves, states = openings(network.game, 4, rng)
    spec = standalone_page.spec(network.game)
    rows = in_worker(browser, spec["rules"], SEARCHES, packed=packed(network), actions=moves, simulations=300)
    player = loaded_player(name)  # its evaluations are all 0, too
    for state, row in zip(states, rows):
        result = player.search(state, 300)
        counts = np.zeros(network.game.num_actions, np.float32)
        counts[row["actions"]] = row["counts"]
        assert (counts / counts.sum() == result.policy).all() and row["action"] == result.action
        assert row["searched"] == pytest.approx(result.value, abs=1e-7)


PROVEN = """
  const node = (player, exactValue, edgeVisits, children) => ({ player, exactValue, exact: true, edgeVisits, children,
    edgeSums: edgeVisits, priors: edgeVisits, actions: children.map((_, e) => e) });
  const won = node(1, -1, [], []), win = node(0, 1, [3], [won]), loss = node(1, 1, [2], [node(0, -1, [], [])]);
  return [node(0, 1, [5, 1], [node(1, -1, [4], [win]), won]),
    node(0, -1, [5, 1], [loss, node(1, 1, [1], [node(0, -1, [1], [loss])])])].map((root) =>
    Object.assign(new Search(), { root, win: -1 }).moves().map((move) => move.variation));
"""


def test_the_shortest_win_and_the_longest_defence_are_played_in_spite_of_visits(browser):
    assert in_worker(browser, "mnk", PROVEN) == [[[1], [0, 0, 0]], [[1, 0, 0, 0], [0, 0]]]


@pytest.mark.parametrize(
    "name, heads",
    [
        ("connect4", ("policy", "value")),
        ("tictactoe", ("policy", "wdl")),
        ("othello", ("policy", "wdl")),
        ("breakthrough", ("policy", "value")),
        ("go(size=9,komi=7)", ("policy", "value", "examples/own_head.py:MovesLeft")),
        ("hex(size=5,swap=True)", ("policy", "value")),
    ],
)
def test_the_network_and_its_moves_are_those_of_the_python_player(browser, name, heads):
    network, rng = found(name, heads), np.random.default_rng(2)
    game, player = network.game, player_of(network)
    moves, states = openings(game, 4, rng)
    rules = standalone_page.spec(game)["rules"]
    rows = in_worker(browser, rules, SEARCHES, packed=packed(network), actions=moves, simulations=60)
    with torch.inference_mode():
        outputs = network.network(torch.from_numpy(game.planes(states)).float())
    values = outputs["value"].numpy()
    values = values if values.ndim == 1 else values[:, 0] - values[:, 2]
    for k, (state, row) in enumerate(zip(states, rows)):
        assert np.abs(np.array(row["policy"]) - outputs["policy"][k].numpy()).max() < 1e-5
        assert abs(row["value"] - values[k]) < 1e-5
        result = player.search(state, 60)
        assert row["action"] == result.action and row["searched"] == pytest.approx(result.value, abs=1e-4)


@pytest.mark.parametrize("block", BLOCKS.names)
def test_every_kind_of_block_is_the_one_in_python(browser, block):
    network = found("hex(size=5)", block=block)
    moves, states = openings(network.game, 3, np.random.default_rng(2))
    rows = in_worker(browser, "hex", SEARCHES, packed=packed(network), actions=moves, simulations=1)
    with torch.inference_mode():
        outputs = network.network(torch.from_numpy(network.game.planes(states)).float())
    for k, row in enumerate(rows):
        assert np.abs(np.array(row["policy"]) - outputs["policy"][k].numpy()).max() < 1e-5
        assert abs(row["value"] - outputs["value"][k].item()) < 1e-5


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens the page of a network and returns it."""

    def open_page(network):
        path = tmp_path / "page.html"
        path.write_bytes(export_command.web(network).replace(b"PACE_MS = 700", b"PACE_MS = 0"))
        browser.open(path)
        browser.wait("state && state.version")
        return network

    return open_page


CLICK = """(() => {
  const cells = [...document.querySelectorAll("g[data-cell]")];
  const group = cells.find((one) => one.dataset.cell === String(CELL));
  group.dispatchEvent(new MouseEvent("click"));
})()"""


def click(browser, cell):
    browser.run(CLICK.replace("CELL", json.dumps(cell)))


def ask(browser, what, argument=None):
    """Ask the worker as the page does, and return the error that it shows."""
    return browser.run(f"ask({json.dumps(what)}, {json.dumps(argument)}).then(() => $('error').textContent)")


@pytest.mark.parametrize("name", SMALL)
def test_a_game_is_played_to_its_end_by_clicks(browser, opened, name):
    """A person clicks at random, the network answers; what the page says of the game is what the rules say."""
    game, rng = opened(found(name, simulations=4)).game, np.random.default_rng(3)
    ask(browser, "analysing", False)
    for _ in range(game.max_plies):
        browser.wait("state.over || mine() && !busy")
        ply, over, legal = browser.run("[state.ply, state.over, state.legal]")
        if over:
            break
        move = legal[rng.integers(len(legal))]
        if move["to"] is None:
            browser.run(
                "[...document.querySelectorAll('#buttons button')]"
                f".find((one) => one.textContent === {json.dumps(move['move'])}).click()"
            )
        else:
            for cell in (move["from"], move["to"]):
                if cell:
                    click(browser, cell)
        browser.wait(f"state.ply > {ply} || $('error').textContent")
    words, result = browser.run("[state.moves, state.result]")
    state = game.initial(1)[0]
    for word in words:
        state = game.play(state[None], np.array([game.text_to_action(state, word)]))[0]
    ended, value = game.terminal(state[None])
    assert ended[0] and result == (value[0] if game.to_play(state[None])[0] == 0 else -value[0])
    assert ("won" in browser.run("$('status').textContent")) == (result != 0) and len(words) >= 5


def test_a_click_counts_although_the_state_changes_during_it(browser, opened):
    opened(found("connect4", simulations=4))
    x, y = browser.run(
        "(() => { const box = document.querySelector('[data-cell=\"0,3\"]').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        version = browser.run("state.version")
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        if kind == "mousePressed":
            browser.wait(f"state.version > {version}")  # it analyses
    browser.wait("state.ply > 0")
    assert browser.run("state.moves[0]") == "4"
    version = browser.run("state.version")
    browser.wait(f"state.version > {version} && $('simulations').textContent.startsWith(state.simulations)")


def test_the_network_plays_itself_as_in_python(browser, opened):
    """The tree is kept between the moves, as `az_mpi web` does it."""
    network = opened(found("connect4", simulations=30))
    session = Session(player_of(network))
    while not session.over:
        session.think(Limit(30))
        session.play(session.best())
    ask(browser, "analysing", False)
    ask(browser, "new")  # drops what was thought since the page was opened
    ask(browser, "humans", [])
    browser.wait("state.over", 200)
    assert browser.run("state.moves") == session.played() and browser.run("state.result") == session.result


def test_illegal_clicks_and_words_do_nothing(browser, opened):
    opened(found("othello(size=6)", simulations=4))
    for cell in ([0, 0], [2, 2], [5, 5]):
        click(browser, cell)
    assert browser.run("[state.ply, busy]") == [0, False]
    assert "no legal move" in ask(browser, "move", "a1") and "no legal move" in ask(browser, "move", "<b>")
    assert "TypeError" in ask(browser, "nonsense") and browser.run("state.ply") == 0
    assert ask(browser, "move", browser.run("state.legal[0].move").upper()) == ""


def test_the_network_answers_a_move_that_is_made_again(browser, opened):
    opened(found("connect4", simulations=4))
    for _ in range(2):
        ask(browser, "goto", 0)
        assert ask(browser, "move", "4") == ""
        browser.wait("state.ply === 2")
        assert browser.run("[state.moves[0], state.moves.length]") == ["4", 2]


def test_the_page_goes_back_and_forth_and_changes_the_strength(browser, opened):
    opened(found("connect4", simulations=4))
    ask(browser, "humans", [0, 1])
    for word in "4453":
        assert ask(browser, "move", word) == ""
    ask(browser, "goto", 1)
    assert browser.run("[state.ply, state.moves.join('')]") == [1, "4453"]
    ask(browser, "goto", 99)
    ask(browser, "goto", 2)
    ask(browser, "move", "7")
    assert browser.run("[state.ply, state.moves.join('')]") == [3, "447"]
    ask(browser, "simulations", 70)
    assert browser.run("[state.limit, $('limit').value]") == [70, "70"]
    browser.wait("state.analysis.length && state.simulations > 20")
    shares, words = browser.run("[state.analysis.map((one) => one.share), state.analysis.map((one) => one.line[0])]")
    assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True) and set(words) <= set("1234567")
    ask(browser, "new")
    assert browser.run("[state.ply, state.moves.length, state.values.length > 1]") == [0, 0, False]


def test_a_head_that_only_trains_need_not_be_written():
    network = found("tictactoe", heads=("policy", "value", "moves_left"))
    network.network.heads["moves_left"].forward = lambda x: x.cumsum(1)
    assert "tictactoe" in export_command.web(network).decode()


def test_a_page_is_one_file_that_loads_nothing(opened, browser):
    """`browser` fails if anything is asked for over the network."""
    text = export_command.web(found("connect4")).decode()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "src=" not in text and "default-src 'none'" in text
    opened(found("tictactoe", simulations=4))
    assert browser.run("[...document.querySelectorAll('.of-run')].every((one) => one.hidden)")


def test_games_without_rules_in_javascript_and_unknown_parameters_are_refused(monkeypatch):
    for name in ("openspiel:oware", "examples/own_game.py:Hex(size=4)"):
        with pytest.raises(Refusal, match="no rules in JavaScript"):
            standalone_page.spec(games.make(name))
    monkeypatch.setattr(standalone_page, "PARAMETERS", ("k", "komi", "max_plies", "swap"))
    with pytest.raises(Refusal, match="do not know its parameter exact"):
        standalone_page.spec(games.make("tictactoe"))
