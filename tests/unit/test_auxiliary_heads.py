"""Heads that only train: targets by hand, also of games without an end; losses; that engines leave them out."""

import numpy as np
import pytest
import torch
from helpers import Hashed, Ways, float_planes, make_config, play_games, positions, trained

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import HEADS
from az_mpi.games.base import positions as before
from az_mpi.network import resnet
from az_mpi.network.engines.openvino_engine import OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import GAME, POLICY, Record, position_dtype
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.loss import losses
from az_mpi.train.replay import Replay, to_samples

TICTACTOE, GO, OTHELLO = games.make("tictactoe"), games.make("go(size=5,komi=0.5)"), games.make("othello(size=4)")
OF_ALL_GAMES = "moves_left", "opponent_reply", "short_term_value(horizon=3)"
ALL = "policy", "value", *OF_ALL_GAMES, "ownership", "score"
WON, OPEN = (0, 3, 1, 4, 2), (0, 3, 1)  # X has the top row; a game that was truncated or resigned


def head(name, game=TICTACTOE):
    return HEADS.make(name, game=game, channels=8)


def record_of(game, *played, outcome=1.0, root_values=0.0, policy=None):
    """Return the record of games, each given by its actions. The policy target is one-hot: the action that is played,
    or policy(actions, ply); None: a fast search, without a target."""
    parts = []
    for number, actions in enumerate(played):
        rows, header = np.zeros(len(actions), position_dtype(game)), np.zeros(1, GAME)
        header["id"], header["length"], header["outcome"] = number, len(actions), outcome
        rows["game"], rows["ply"], rows["action"], rows["weight"] = number, np.arange(len(actions)), actions, 1
        rows["state"] = list(before(game, game.initial(1)[0], actions))
        rows["to_play"] = game.to_play(rows["state"])
        rows["value"] = outcome * (1 - 2 * rows["to_play"])
        rows["root_value"] = root_values
        one_hot = [actions[ply] if policy is None else policy(actions, ply) for ply in range(len(actions))]
        rows["policy_count"] = [action is not None for action in one_hot]
        entries = np.array([(action, 1) for action in one_hot if action is not None], POLICY)
        parts.append(Record(header, rows, entries))
    return Record.join(game, parts)


def target_of(name, record, game=TICTACTOE):
    return head(name, game).target(record, game, None)


# targets


def test_moves_left_are_counted_to_an_end_that_was_seen():
    plies = 20 * target_of("moves_left", record_of(TICTACTOE, WON, OPEN, WON))
    assert plies == pytest.approx([5, 4, 3, 2, 1, *[np.nan] * 3, 5, 4, 3, 2, 1], nan_ok=True)


def test_a_game_that_ends_with_a_move_of_chance_was_seen_to_its_end():
    game = games.make("2048")
    config = make_config("2048", search={"simulations": 2}, selfplay={"parallel_games": 4})
    record = play_games(Player(config, game, Hashed(game), 3), range(4))
    record = Record.join(game, [record.select(record.games["id"] == k) for k in (2, 0, 3, 1)])
    left = [np.arange(length, 0, -1) for length in record.games["length"]]
    assert not record.games["truncated"].any()
    assert 20 * target_of("moves_left", record, game) == pytest.approx(np.concatenate(left))
    record.chance = record.chance[:0]  # nobody has seen what chance answered
    assert np.isnan(target_of("moves_left", record, game)).all()


def test_the_opponents_reply_is_the_next_action_of_the_same_game():
    target = target_of("opponent_reply", record_of(TICTACTOE, WON, OPEN, (8,)))
    assert target.tolist() == [3, 1, 4, 2, -1, 3, 1, -1, -1]


def test_a_reply_of_a_fast_search_is_no_target():
    fast = record_of(TICTACTOE, WON, policy=lambda actions, ply: None if ply == 2 else actions[ply])
    assert target_of("opponent_reply", fast).tolist() == [3, -1, 4, 2, -1]


@pytest.mark.parametrize("name", ["hex", "hex(size=5,swap=True)", "breakthrough", "openspiel:chess(max_plies=30)"])
def test_a_reply_is_seen_from_the_player_to_move(name):
    """The cell of the reply is one that the reply changes, on the board as the mover sees it."""
    if name.startswith("openspiel"):
        pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    game, rng, actions = games.make(name), np.random.default_rng(2), []
    states = [game.initial(1)]
    while len(actions) < 12:
        actions.append(int(rng.choice(np.flatnonzero(game.legal(states[-1])[0]))))
        states.append(game.play(states[-1], np.array(actions[-1:])))
    target = target_of("opponent_reply", record_of(game, actions), game)
    cells = game.planes_shape[1] * game.planes_shape[2]
    for ply in range(10):
        # Two plies later the same player is to move and sees the reply.
        before, after = (game.planes(states[ply + k])[0].reshape(-1, cells) for k in (0, 2))
        differs = before != after
        changed = differs[~differs.all(axis=1)].any(axis=0)  # without planes that count moves
        assert actions[ply + 1] == cells or changed[target[ply] // game.action_kinds], ply
    assert (target[:-1] != actions[1:]).sum() > 5


@pytest.mark.parametrize("name", ["tictactoe", "go(size=5)", "hex(size=4)", "connect4", "breakthrough"])
def test_the_reply_turns_with_the_board(name):
    """The target turns as a policy does that is all on the next action."""
    game, rng, state, actions = games.make(name), np.random.default_rng(5), None, []
    state = game.initial(1)
    while len(actions) < 7 and not game.terminal(state)[0][0]:
        actions.append(int(rng.choice(np.flatnonzero(game.legal(state)[0]))))
        state = game.play(state, np.array(actions[-1:]))
    record = record_of(game, actions, policy=lambda actions, ply: (actions[1:] + actions[:1])[ply])
    heads = {"opponent_reply": head("opponent_reply", game)}
    replay = Replay(game, heads)
    replay.add(to_samples(record, game, heads, None, 0))
    batch = replay.sample(rng, 500)
    reply, expected = batch["opponent_reply"], batch["policy"].argmax(axis=1)
    if game.other_view is not None:  # the next player counts the cells otherwise
        cell, kind = divmod(expected, game.action_kinds)
        expected = game.other_view[cell] * game.action_kinds + kind
    assert reply.dtype == np.int32 and (reply[reply >= 0] == expected[reply >= 0]).all()
    assert 0 < (reply == -1).mean() < 0.5 and len(np.unique(reply)) > len(actions)


def test_short_term_values_by_hand():
    """With a horizon of 1 ply half of each average is the newest root value, and half what follows."""
    values = np.array([0.5, 0.2, 1.0])  # of X, O and X: for X they are 0.5, -0.2 and 1
    record = record_of(TICTACTOE, OPEN, OPEN, outcome=1.0, root_values=values)
    target = target_of("short_term_value(horizon=1)", record)
    assert target == pytest.approx([0.45, -0.4, 1.0] * 2)
    lost = record_of(TICTACTOE, OPEN[:1], outcome=-1.0, root_values=0.0)
    assert target_of("short_term_value(horizon=3)", lost) == pytest.approx([-0.75])
    # After a long time nothing but the first values counts, and with a long horizon nothing but the outcome.
    assert target_of("short_term_value(horizon=10000)", record) == pytest.approx([1, -1, 1] * 2, abs=1e-3)


def test_short_term_values_where_a_player_moves_twice():
    game = Ways(4, twice=True)
    record = record_of(game, (0, 1, 1, 0), outcome=0.0, root_values=[1, 0, 1, 0])
    # For the first player: 1, 0, -1, 0, and then the draw.
    assert target_of("short_term_value(horizon=1)", record, game) == pytest.approx([0.375, -0.25, 0.5, 0])


def go_game(words):
    return [FIVE_WORDS[word] for word in words.split()]


FIVE_WORDS = {GO.action_to_text(None, action): action for action in range(26)}
# Black has columns A to C, White has D and E: 15 points to 10, of which some are empty.
WALLS = "C1 D1 C2 D2 C3 D3 C4 D4 C5 D5"


def test_ownership_and_score_of_go_by_hand():
    record = record_of(GO, go_game(f"{WALLS} pass pass"), go_game("C3 pass"), go_game(f"pass {WALLS} pass pass"))
    owned, score = target_of("ownership", record, GO), target_of("score", record, GO)
    black = np.tile([1, 1, 1, -1, -1], (5, 1))
    unit = 12 / 19 * 5
    assert owned.dtype == np.int8 and owned.shape == (12 + 2 + 13, 5, 5)
    for ply in range(12):
        sign = 1 - 2 * (ply % 2)
        assert (owned[ply] == sign * black).all() and score[ply] * unit == pytest.approx(sign * (15 - 10 - 0.5))
    assert (owned[12:14] == 2).all() and np.isnan(score[12:14]).all()  # the game has not ended
    for ply in range(13):  # White's walls are where Black's were: 15 points for White
        sign = 1 - 2 * (ply % 2)
        assert (owned[14 + ply] == -sign * black).all()
        assert score[14 + ply] * unit == pytest.approx(sign * (10 - 15 - 0.5))


@pytest.mark.parametrize("game", [GO, OTHELLO], ids=lambda game: game.name)
def test_owned_cells_are_the_points(game):
    """In positions of all kinds: the lead, without komi, is the cells of one player less those of the other."""
    states = positions(200, game, seed=3)
    owned = game.ownership(states, 0)
    assert (owned.sum(axis=(1, 2)) == game.lead(states) + getattr(game, "komi", 0)).all() and np.ptp(owned) == 2
    assert (game.ownership(states, 1) == -owned).all()
    planes = game.planes(states)
    mine = np.where(game.to_play(states)[:, None, None] == 0, owned, -owned)
    assert (mine[planes[:, 0] > 0] == 1).all() and (mine[planes[:, 1] > 0] == -1).all()


def test_ownership_turns_with_the_board():
    """Stones that stand on the board when the game ends are owned, through whatever symmetry they are seen."""
    heads = {"ownership": head("ownership", GO)}
    played = go_game(f"A1 pass C4 E1 B2 {WALLS.replace('C4', 'A3')} pass pass")
    replay, record = Replay(GO, heads), record_of(GO, played)
    replay.add(to_samples(record, GO, heads, None, 0))
    batch = replay.sample(np.random.default_rng(1), 300)
    own, other = batch["planes"][:, 0] > 0, batch["planes"][:, 1] > 0
    assert (batch["ownership"][own] == 1).all() and (batch["ownership"][other] == -1).all()
    assert own.any() and other.any() and len(np.unique(batch["ownership"].reshape(300, -1), axis=0)) == 16


def test_targets_of_resigned_and_truncated_games_of_self_play():
    """Unknown exactly where a game's last move did not end it."""
    config = make_config(
        GO.name,
        network={"heads": ALL, "blocks": 1, "channels": 8},
        search={"simulations": 4},
        selfplay={"parallel_games": 8, "resign_threshold": 0.5, "resign_play_on": 0.5, "max_plies": 25},
    )
    record = play_games(Player(config, GO, Hashed(GO), 0), range(40))
    states = record.positions["state"][np.cumsum(record.games["length"]) - 1]
    actions = record.positions["action"][np.cumsum(record.games["length"]) - 1]
    ended = GO.terminal(GO.play(states, actions))[0]
    truncated = record.games["truncated"]
    assert ended.any() and truncated.any() and (~ended & ~truncated).any() and not (ended & truncated).any()
    known = np.repeat(ended, record.games["length"])
    assert (np.isfinite(target_of("moves_left", record, GO)) == known).all()
    assert (np.isfinite(target_of("score", record, GO)) == known).all()
    assert ((target_of("ownership", record, GO) == 2).all(axis=(1, 2)) == ~known).all()
    assert np.abs(target_of("short_term_value", record, GO)).max() <= 1
    score = target_of("score", record, GO)[known]
    assert (np.sign(score) == record.positions["value"][known]).all()


@pytest.mark.parametrize("name", ALL[2:])
def test_an_empty_record_has_targets_too(name):
    assert len(target_of(name, Record.empty(GO), GO)) == 0


# losses


def test_losses_of_auxiliary_heads_match_hand_computation():
    """Zero outputs: Huber's 0.5 (1 - 0.25) and 0.5 - 0.125, ln 2 a cell, ln 9, and squares."""

    def loss(name, target, shape, game=TICTACTOE):
        return head(name, game).loss(torch.zeros(len(target), *shape), torch.tensor(target)).tolist()

    assert loss("moves_left", [1.0, 0.5, 0.0, np.nan], ()) == pytest.approx([0.375, 0.125, 0, 0])
    assert loss("score", [2.0, -1.0, np.nan], (), GO) == pytest.approx([1.5, 0.5, 0])
    assert loss("short_term_value", [0.5, -1.0], ()) == pytest.approx([0.25, 1])
    assert loss("opponent_reply", [3, -1], (9,)) == pytest.approx([np.log(9), 0])
    boards = np.stack([np.full((5, 5), owner, np.int8) for owner in (1, 0, 2)]).tolist()
    assert loss("ownership", boards, (5, 5), GO) == pytest.approx([np.log(2), np.log(2), 0])


@pytest.fixture
def configured():
    return make_config(
        GO.name,
        network={"heads": ALL, "blocks": 1, "channels": 8},
        search={"simulations": 4},
        selfplay={"parallel_games": 8},
        report={"summary_frequency": 1},
        train={"batch_size": 32, "mixed_precision": False, "warmup_steps": 0, "learning_rate": 0.01},
    )


def batch_of(config, network, record):
    replay = Replay(GO, network.heads)
    replay.add(to_samples(record, GO, network.heads, config.train, 0))
    return replay, replay.sample(np.random.default_rng(2), 32)


def test_positions_without_a_target_have_no_gradient(configured, world):
    network = trained(settings=configured.network, game=GO)
    _, batch = batch_of(configured, network, record_of(GO, [12]))  # one move, then the game was given up
    learner = Learner(configured, GO, network, backends.make("ddp", world, world, "cpu"), "cpu")
    by_head = losses(network, learner.tensors(batch))
    unknown = ("moves_left", "opponent_reply", "ownership", "score")
    assert [by_head[name].item() for name in unknown] == [0] * 4
    sum(by_head[name] for name in unknown).backward()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert gradients and all((gradient == 0).all() for gradient in gradients)
    assert by_head["short_term_value_3"].item() > 0


def test_all_heads_learn_together(configured, world):
    record = play_games(Player(configured, GO, Hashed(GO), 0), range(16))
    network = resnet.build(GO, configured.network, 1)
    replay, _ = batch_of(configured, network, record)
    learner, summaries = Learner(configured, GO, network, backends.make("ddp", world, world, "cpu"), "cpu"), []
    learner.train(replay, Progress(samples_due=60 * 32), lambda step, values: summaries.append(values))
    names = [f"{name}_loss" for name in network.heads]
    assert names[2:] == [
        "moves_left_loss",
        "opponent_reply_loss",
        "short_term_value_3_loss",
        "ownership_loss",
        "score_loss",
    ]
    for name in names:
        first, last = (np.mean([values[name] for values in part]) for part in (summaries[:10], summaries[-10:]))
        assert last < first, name


# play


@pytest.mark.parametrize("engine", ["torch", "openvino"])
def test_engines_do_not_evaluate_heads_that_only_train(configured, engine):
    if engine == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    make = {"torch": TorchEngine, "openvino": lambda *what: OpenVinoEngine(*what[:2], 1, what[2])}[engine]
    states, seen = positions(9, GO), []
    engine = make(trained(seed=1, settings=configured.network, game=GO), GO, "fp32")
    for seed in (1, 2):
        network = trained(seed=seed, settings=configured.network, game=GO)
        engine.load(network)
        found = engine.evaluate(GO.planes(states))
        with torch.inference_mode():
            exact = network(float_planes(states, GO))
        assert list(found) == ["policy", "value"] and len(exact) == len(ALL)
        assert all(np.abs(found[name] - exact[name].numpy()).max() < 1e-5 for name in found)
        seen.append(found["value"])
    assert np.abs(seen[0] - seen[1]).max() > 0.01


@pytest.mark.parametrize(
    "name, game, why",
    [
        ("ownership", "connect4", "does not say who owns"),
        ("score", "connect4", "does not count points"),
        ("moves_left(weight=0)", "connect4", "weight is 0"),
        ("score(weight='much')", "go", "weight is 'much'"),
        ("short_term_value(horizon=0)", "connect4", "horizon is 0"),
        ("moves_left(factor=2)", "connect4", "no argument"),
    ],
)
def test_a_head_with_wrong_arguments_or_game_is_refused(name, game, why):
    with pytest.raises(Refusal, match=f"network.heads.*{why}|network.heads(.|\n)*{why}"):
        resnet.build(games.make(game), make_config(game, network={"heads": ("policy", "value", name)}).network, 1)


def test_one_network_may_have_several_horizons():
    heads = ("policy", "value", "short_term_value(horizon=2)", "short_term_value(horizon=20)")
    network = resnet.build(TICTACTOE, make_config(network={"heads": heads}).network, 1)
    assert list(network.heads)[2:] == ["short_term_value_2", "short_term_value_20"]
