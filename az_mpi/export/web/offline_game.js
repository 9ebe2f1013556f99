"use strict";
// A game against the network, for web_client.html: az_mpi/play/web_game.py and player/session.py in a worker of the browser.
const SLICE_MS = 50, PUBLISH_MS = 250, PACE_MS = 700, ANALYSIS_MAX = 20000, SIMULATIONS_MAX = 1000000, SHOWN_MOVES = 12, SHOWN_LINE = 10;

class OfflineGame {
  // packed: what az_mpi/export/standalone_page.py has written. tell: function of a state for the page.
  constructor(packed, tell) {
    const { game, network, settings, about } = packed, bytes = Uint8Array.from(atob(packed.weights), (char) => char.charCodeAt(0));
    const weights = new Float32Array(bytes.length / 4), view = new DataView(bytes.buffer);
    for (let i = 0; i < weights.length; i++) weights[i] = view.getFloat32(4 * i, true);
    this.game = new GAMES[game.rules](game);
    this.network = new Network(network, weights);
    this.search = new Search(this.game, (state) => this.network.evaluate(this.game.planes(state)), settings);
    Object.assign(this, { tell, about, limit: settings.simulations, humans: [0], analysing: true, version: 0, published: 0 });
    this.do_new();
  }
  get state() { return this.states[this.states.length - 1]; }
  get ply() { return this.actions.length; }
  get result() { // for the player who began
    const value = this.game.result(this.state);
    return value === null ? null : (this.state.player ? -value : value) + 0;
  }

  // What the page can ask.
  do_new() {
    this.actions = []; this.line = []; this.values = new Map(); this.states = [this.game.initial()];
    this.search.reset(this.state);
    this.moved();
  }
  do_move(text) {
    if (this.isNetworksTurn) return "it is the network's turn";
    const word = String(text).trim().toLowerCase();
    const action = this.result === null ? this.game.legal(this.state).find((each) => this.game.text(this.state, each).toLowerCase() === word) : undefined;
    if (action === undefined) return this.result === null ? "no legal move here" : "the game is over";
    if (this.humans.length < 2) this.line.length = this.ply; // even if it is the line's next move, so that the network answers it
    this.play(action);
    this.stayAsStrongAsChosen();
    return null;
  }
  do_goto(ply) {
    ply = Math.min(Math.max(Math.trunc(ply) || 0, 0), this.line.length);
    if (ply < this.ply) {
      this.actions.length = ply; this.states.length = ply + 1;
      this.search.reset(this.state);
    }
    while (this.ply < ply) this.follow(this.line[this.ply]);
    this.moved();
  }
  do_humans(sides) { this.humans = [0, 1].filter((side) => sides.includes(side)); this.begun = Date.now(); this.stayAsStrongAsChosen(); }
  do_analysing(wanted) { this.analysing = Boolean(wanted); }
  do_simulations(number) { this.limit = Math.min(Math.max(Math.trunc(number) || 1, 1), SIMULATIONS_MAX); }

  // Thinking.
  get isNetworksTurn() { return this.result === null && !this.humans.includes(this.state.player) && this.ply === this.line.length; }
  stayAsStrongAsChosen() { if (this.isNetworksTurn && this.search.simulations > this.limit) this.search.reset(this.state); }
  get hasToThink() { return this.result === null && (this.isNetworksTurn || (this.analysing && !this.isKnown)); }
  // Search up to `wanted` simulations, or for a slice of time; return whether the search is complete.
  think(wanted, slice = SLICE_MS) {
    const end = Date.now() + slice;
    while (this.search.simulations < wanted && !(this.search.root.visits && this.search.root.exact)) {
      this.search.step();
      if (Date.now() > end) return false;
    }
    if (!this.search.root.visits) this.search.step();
    return true;
  }
  turn() {
    const isDone = this.think(this.isNetworksTurn ? this.limit : ANALYSIS_MAX);
    if (isDone && this.isNetworksTurn && Date.now() - this.begun >= PACE_MS) this.play(this.search.moves()[0].action);
    else if (isDone && !this.isNetworksTurn) { this.isKnown = true; this.publish(); }
    if (Date.now() - this.published > PUBLISH_MS) this.publish();
  }
  play(action) {
    if (this.line[this.ply] !== action) {
      this.line.length = this.ply;
      this.line.push(action);
      for (const ply of [...this.values.keys()]) if (ply > this.ply) this.values.delete(ply);
    }
    this.follow(action);
    this.moved();
  }
  follow(action) {
    this.actions.push(action);
    this.states.push(this.game.play(this.state, action));
    this.search.advance(action);
  }

  // The state, as web_game.py has it.
  moved() {
    const board = this.game.board(this.state), before = this.ply ? this.game.board(this.states[this.ply - 1]) : null;
    if (before) Object.assign(board, { last: filledSince(board, before), left: leftSince(board, before, this.states[this.ply - 1].player) });
    this.position = { board, text: board.players.map((row) => row.map((owner) => (owner < 0 ? "." : "XO"[owner])).join(" ")).join("\n"),
      cut: this.result !== null && this.game.isCut(this.state), ply: this.ply, to_play: this.state.player, over: this.result !== null, result: this.result, legal: this.legal(board) };
    this.begun = Date.now(); this.isKnown = false;
    this.publish();
  }
  legal(board) {
    if (this.result !== null) return [];
    const taken = new Set();
    return this.game.legal(this.state).map((action) => {
      const then = this.game.board(this.game.play(this.state, action)), filled = filledSince(then, board), left = leftSince(then, board, this.state.player);
      let to = null, from = null;
      if (filled.length === 1 && left.length <= 1 && (left.length || board.players[filled[0][0]][filled[0][1]] < 0)) { to = filled[0]; from = left[0] || null; }
      if (taken.has(`${from}/${to}`)) to = from = null; // another move has these cells already: this one is a button
      taken.add(`${from}/${to}`);
      return { move: this.game.text(this.state, action), to, from };
    });
  }
  words(state, actions) {
    return actions.map((action) => {
      const word = this.game.text(state, action);
      state = this.game.play(state, action);
      return word;
    });
  }
  publish() {
    const { search, state } = this, moves = this.result === null ? search.moves() : [];
    if (moves.length) this.values.set(this.ply, search.value * (state.player ? -1 : 1));
    const analysis = moves.filter((move) => move.visits).slice(0, SHOWN_MOVES).map(({ action, variation, ...rest }) =>
      ({ ...rest, move: this.game.text(state, action), line: this.words(state, variation.slice(0, SHOWN_LINE)) }));
    this.published = Date.now();
    this.tell({ ...this.about, ...this.position, humans: this.humans, analysing: this.analysing, limit: this.limit, simulations: search.simulations, analysis,
      moves: this.words(this.states[0], this.line), values: [...this.values].sort((a, b) => a[0] - b[0]), stored: null, checkpoints: [], thinking: this.isNetworksTurn, results: {}, version: ++this.version });
  }
}

// The cells that a move put pieces on: those that were empty, else those whose piece it captured.
function filledSince(board, before) {
  const changed = [];
  board.players.forEach((row, r) => row.forEach((owner, c) => { if (owner >= 0 && owner !== before.players[r][c]) changed.push([r, c]); }));
  const empty = changed.filter(([r, c]) => before.players[r][c] < 0);
  return empty.length ? empty : changed;
}
// The cells that pieces of a player have left.
function leftSince(board, before, player) {
  const left = [];
  before.players.forEach((row, r) => row.forEach((owner, c) => { if (owner === player && board.players[r][c] < 0) left.push([r, c]); }));
  return left;
}
