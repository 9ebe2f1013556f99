"""One game in progress with its search. All ways to play share it: terminal, web page, GTP and UCI."""

import time
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches

import numpy as np

from az_mpi.core.players import of_players
from az_mpi.games import chance
from az_mpi.games.base import CHANCE, Game, last_board, legal_words, positions, results
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.restricted_game import restricted
from az_mpi.search.proof_length import proof_lengths
from az_mpi.search.reading import RootMove, root_moves
from az_mpi.search.tree import EDGE, NODE

TREE_BYTES = 2**29  # of a search tree, by default
SIMULATIONS_MAX = 1_000_000
RESERVE, RESERVE_S = 0.1, 0.2  # of the time for a move: the smaller of the two is kept for all work besides simulations
# The longest wait for a core so far counts as a reserve. It shrinks with each move, and takes at most STALL_MAX of the
# time.
STALL_KEPT, STALL_MAX = 0.98, 0.5
CACHE_BYTES = 2**26  # for evaluations
LEAST = 1  # simulation for a move: without it there is nothing to choose from
GROWTH = 8  # simulations in the tree for each leaf that is evaluated at once
_SLOT = np.arange(1)


def ready_session(player: LoadedPlayer) -> "Session":
    """Return a new game for a player that searches as fast as it can on this machine; its first moves wait for no
    compiler."""
    session = Session(player, player.leaves_at_once(), CACHE_BYTES)
    session.warm_up()
    return session


def node_bytes(game: Game, state: np.ndarray) -> int:
    """Return the bytes of a node in a search tree of a game, at as many edges as the position `state`, [S], has."""
    rng = np.random.default_rng(0)  # an outcome that leads to chance again must not come up for ever
    states = chance.resolve(game, state[None], lambda rows: rng.random(len(rows)))
    edges = max(int(game.legal(states).sum()), game.num_outcomes)
    return NODE.itemsize + game.state_dtype.itemsize * game.state_size + EDGE.itemsize * edges


class Session:
    """A game in progress. Its search tree stays between moves: simulations that went through the moves that were played
    still count. Only one thread at a time may use a session. Where the game has moves of chance, who drives a session
    calls `draw` after `restart` and after `play`, before it searches.

    leaves_max: leaves that are evaluated at once, fewer in a small tree. cache_bytes: to remember evaluations in.
    tree_bytes: a search ends when its tree is as large as this; None: TREE_BYTES."""

    def __init__(self, player: LoadedPlayer, leaves_max: int = 1, cache_bytes: int = 0, tree_bytes: int | None = None):
        self.player = player
        self.game = player.game
        self.actions: list[int] = []  # that were played, outcomes of chance among them
        self._start_ply = 0  # the moves before those
        self.rng = np.random.default_rng()  # which draws these
        # From the one where the game began to the present one, each [S].
        self.states = [self.game.initial(1)[0]]
        self._leaves_max, self._cache_bytes = leaves_max, cache_bytes
        self._slowest_s = 0.0
        self._stall_s = 0.0
        self.resize(TREE_BYTES if tree_bytes is None else tree_bytes)

    def resize(self, tree_bytes: int) -> None:
        """Drop the search tree, and let the next one be of up to `tree_bytes`."""
        self._tree_bytes = tree_bytes
        self._room = self._simulations_max()
        self._search = self.player.new_search(self._room, self._cache_bytes)
        self._new_tree()

    def use_game(self, game: Game) -> None:
        """Play by other rules from now on, such as another komi, which the states fit. The search tree is dropped."""
        self.game, self.player = game, self.player.with_game(game)
        self.resize(self._tree_bytes)

    def beside(self, state: np.ndarray | None = None, actions: Collection[int] = ()) -> "Session":
        """Return a session for one search of the position `state`, [S], or of the present one. Its tree is its own.
        actions: the legal ones that it looks at; () for all."""
        state = self.state if state is None else state
        player = self.player.with_game(restricted(self.game, state, actions)) if actions else self.player
        session = Session(player, self._leaves_max, tree_bytes=self._tree_bytes)
        session.restart(state, self._start_ply + len(self.actions))
        return session

    def restore(self, states: Sequence[np.ndarray], actions: Sequence[int]) -> None:
        """Go back to a game in progress: its positions, each [S], and the actions between them."""
        if len(self.states) >= len(states) > 0 and all(a is b for a, b in zip(self.states, states)):
            self.undo(len(self.states) - len(states))
            return
        self.states[:], self.actions[:] = states, actions
        self._new_tree()

    def _simulations_max(self):
        """Return how many simulations fill the tree."""
        most = self._tree_bytes // node_bytes(self.game, self.states[-1])
        return max(min(most, SIMULATIONS_MAX), 2 * self._leaves_max)

    def restart(self, start: np.ndarray | None = None, plies: int = 0) -> None:
        """Begin a new game at the position `start`, [S]; None: at the initial one. plies: the moves before it."""
        self.actions.clear()
        self._start_ply = plies
        self.states[:] = self.game.initial(1) if start is None else [start]
        self._new_tree()

    def warm_up(self) -> None:
        """Use all that a game uses once, on the initial position, so that no later move waits for a compiler."""
        self.draw()
        self.think(Limit(simulations=8 * GROWTH))
        self.play(self.best())
        self.draw()
        if not self.over:
            self.think(Limit(simulations=1))
            proof_lengths(self._search.trees, 0)
        self.restart()
        self._slowest_s = self._stall_s = 0.0

    @property
    def state(self) -> np.ndarray:
        """The position, [S]."""
        return self.states[-1]

    @property
    def before(self) -> np.ndarray | None:
        """The position before the last move, [S]; None at the start."""
        return self.states[-2] if self.actions else None

    @property
    def to_play(self) -> int:
        """Who is to move: 0 for the player who began, then 1 and so on; CHANCE where a move is drawn by lot."""
        return int(self.game.to_play(self.state[None])[0])

    @property
    def over(self) -> bool:
        return self.result is not None

    @property
    def result(self) -> float | None:
        """The result for the player who began, in [-1, 1]; None while the game is not over."""
        found = self.results
        return None if found is None else found[0]

    @property
    def results(self) -> list[float] | None:
        """The result of each player, in [-1, 1]; None while the game is not over."""
        ended, found = results(self.game, self.state[None], self._start_ply + len(self.actions))
        return (found[0] + 0.0).tolist() if ended[0] else None  # no -0.0

    @property
    def score(self) -> float | None:
        """What one player has so far, in the game's own unit; None if the game has no scores."""
        score = self.game.score(self.state[None])
        return None if score is None else float(score[0])

    def drawing(self, columns: tuple[str, ...] | None = None) -> str:
        """Return the position as lines: as `Board.named_text`, or as the game shows it if it has no boards. columns:
        names for the columns in place of the board's own."""
        board = last_board(self.game, self.states)
        return self.game.show(self.state) if board is None else board.named_text(columns)

    def legal(self) -> dict[str, int]:
        """Return the legal actions by their names in the game's notation; none once the game is over, and none where
        it is chance's move."""
        return {} if self.over or self.to_play == CHANCE else legal_words(self.game, self.state)

    def find(self, text: str) -> int:
        """Return the legal action that `text` names. Raises ValueError, which names the legal moves most like it."""
        if self.over:
            raise ValueError("the game is over")
        try:
            return self.game.text_to_action(self.state, text)
        except ValueError:
            words = {word.lower(): word for word in self.legal()}
            near = get_close_matches(text.strip().lower()[:80], words, 4, 0.4) or list(words)[:4]
            raise ValueError(
                "no legal move here; legal are, for example, " + ", ".join(words[word] for word in near)
            ) from None

    def play(self, action: int) -> None:
        """Play a legal action; the part of the tree below it stays. What that takes is part of the next `think`."""
        self.states.append(self.game.play(self.state[None], np.array([action]))[0])
        self.actions.append(int(action))

    def draw(self) -> list[str]:
        """Play all moves of chance that come next; return their names."""
        words = []
        while self.to_play == CHANCE and not self.over:
            [outcome] = chance.draw(self.game, self.state[None], self.rng.random(1))
            words.append(self.game.outcome_to_text(self.state, int(outcome)))
            self.play(int(outcome))
        return words

    def forget(self) -> None:
        """Drop the search tree of the position."""
        self._new_tree()

    def undo(self, plies: int = 1) -> None:
        """Take back the last `plies` moves."""
        kept = len(self.actions) - plies
        del self.actions[kept:], self.states[kept + 1 :]
        if kept < self._plies:
            self._new_tree()

    def played(self) -> list[str]:
        """Return the moves that were played, in the game's notation."""
        return [self._word(state, action) for state, action in zip(self.states, self.actions)]

    def line(self, actions: list[int]) -> list[str]:
        """Return moves from this position on, such as a principal variation, in the game's notation."""
        return [self._word(state, action) for state, action in zip(positions(self.game, self.state, actions), actions)]

    def _word(self, state, action):
        by_lot = self.game.num_outcomes and self.game.to_play(state[None])[0] == CHANCE
        return self.game.outcome_to_text(state, action) if by_lot else self.game.action_to_text(state, action)

    def think(self, limit: Limit, stop: Callable[[], bool] = lambda: False) -> None:
        """Search the position, on top of what is in the tree, up to `limit`, or until its result is known, the tree
        is full or `stop` returns true, which is asked after every step, of one simulation or several.

        Time: a step begins only if it would end in time, even at twice the slowest step so far or after the longest
        recent wait for a core. A part of limit.seconds is kept in reserve for the same wait. At least one step is run
        if the tree is empty."""
        end = time.monotonic() + limit.seconds - self._reserve_s(limit.seconds)
        self._follow()
        self._search.target[:] = limit.simulations or self.player.settings.simulations  # Gumbel search plans with it
        self._slowest_s /= 2  # of the search before: the first simulation of this one is rarely slower
        now = time.monotonic()
        stepped = False

        def enough():
            num = self._simulations()
            if num < LEAST:
                return False
            all_run = limit.simulations and num >= limit.simulations
            too_late = limit.seconds and now + max(2 * self._slowest_s, self._stall_s) >= end
            return all_run or too_late or self._is_full() or (stepped and stop())

        while not self._search.trees.exact[0, 0] and not enough():
            worked = time.process_time()
            self._search.step_several(0, self._leaves(limit))
            stepped = True  # so a slice of time that is over before it begins makes progress too
            before = now
            now = time.monotonic()
            waited = now - before - (time.process_time() - worked)  # for a core
            self._slowest_s = max(self._slowest_s, now - before)
            self._stall_s = max(self._stall_s, waited)

    def _reserve_s(self, seconds):
        """Return how many of the `seconds` for a move are kept in reserve. Call it once a move: it also shortens the
        remembered stall."""
        self._stall_s *= STALL_KEPT
        return max(min(seconds * RESERVE, RESERVE_S), min(self._stall_s, seconds * STALL_MAX))

    @property
    def simulations(self) -> int:
        """How many simulations have gone through the tree's root, those for earlier moves included."""
        self._follow()
        return self._simulations()

    @property
    def value(self) -> float:
        """The value that the search gives the position, in [-1, 1] for the player to move; 0 before a search."""
        self._follow()
        return float(self._search.value(_SLOT)[0])

    @property
    def values(self) -> list[float]:
        """The value of the position for each player, player 0 first."""
        num_players, value = self.game.num_players, np.array([self.value])
        if num_players <= 2:
            return of_players(num_players, value, np.array([self.to_play]))[0].tolist()
        trees = self._search.trees
        times = 1 if trees.exact[0, 0] else max(int(trees.visits[0, 0]), 1)
        return (trees.several[0, 0] / times).tolist()

    def best(self) -> int:
        """Return the action to play, after `think`: the first of `moves`."""
        return self.moves()[0].action

    def moves(self) -> list[RootMove]:
        """Return what the search found about each legal move, best first; an empty list before a search."""
        self._follow()
        return root_moves(self._search, 0)

    def _simulations(self):
        return max(int(self._search.trees.visits[0, 0]) - 1, 0)  # the first visit is the root's own evaluation

    def _leaves(self, limit):
        """Return how many leaves the next step evaluates at once: few in a small tree, where they would be poor."""
        left = max(limit.simulations - self._simulations(), 1) if limit.simulations else self._leaves_max
        return min(self._leaves_max, 1 + self._simulations() // GROWTH, left)

    @property
    def fullness(self) -> float:
        """The share of the room for the tree that is taken, in [0, 1]."""
        trees = self._search.trees
        nodes = int(trees.nodes_used[0]) * (NODE.itemsize + self.state.nbytes)
        edges = int(trees.edges_used[0]) * EDGE.itemsize
        return min(max((nodes + edges) / self._tree_bytes, self._simulations() / self._room), 1.0)

    def _is_full(self):
        return self.fullness >= 1 or self._simulations() + 2 * (self._leaves_max - 1) >= self._room

    def _follow(self):
        """Advance the tree by the moves that were played since it was used."""
        for action in self.actions[self._plies :]:
            self._search.advance(_SLOT, np.array([action]))
        self._plies = len(self.actions)

    def _new_tree(self):
        self._search.reset(_SLOT, self.state[None], np.zeros(1, np.uint64), self._start_ply + len(self.actions))
        self._plies = len(self.actions)  # before the tree's root
