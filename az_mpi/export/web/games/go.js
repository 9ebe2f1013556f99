"use strict";
// A state also has {passes: 0 to 2 in a row, ply, history: hashes of the last 16 positions, the newest first, two words each}.
const REMEMBERED = 16;

GAMES.go = class extends BoardGame {
  constructor(spec) {
    super(spec);
    this.beside = Array.from({ length: this.size }, (_, p) => {
      const r = Math.floor(p / this.columns), c = p % this.columns;
      return [[r - 1, c], [r, c - 1], [r, c + 1], [r + 1, c]].filter(([y, x]) => this.inside(y, x)).map(([y, x]) => y * this.columns + x);
    });
    let seed = 1;
    this.words = Int32Array.from({ length: 4 * this.size }, () => { // mulberry32: [player][point][2]
      seed = (seed + 0x6d2b79f5) | 0;
      let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
      return x ^ (x >>> 14);
    });
  }
  initial() { return { cells: this.empty(), player: 0, passes: 0, ply: 0, history: new Int32Array(2 * REMEMBERED) }; }
  word(player, p) { return 2 * (player * this.size + p); }
  // The stones, or empty points, that hang together with p, and what is beside them.
  region(cells, p) {
    const colour = cells[p], points = [p], seen = new Set(points), liberties = new Set(), touched = new Set();
    for (let k = 0; k < points.length; k++) for (const q of this.beside[points[k]]) {
      if (cells[q] !== colour) (cells[q] < 0 ? liberties : touched).add(cells[q] < 0 ? q : cells[q]);
      else if (!seen.has(q)) { seen.add(q); points.push(q); }
    }
    return { points, liberties, touched };
  }
  isCut(state) { return state.passes < 2; }
  hash(cells) {
    let high = 0, low = 0;
    for (let p = 0; p < this.size; p++) if (cells[p] >= 0) { const at = this.word(cells[p], p); high ^= this.words[at]; low ^= this.words[at + 1]; }
    return [high, low];
  }
  play(state, action) {
    const player = 1 - state.player, ply = state.ply + 1;
    if (action === this.size) return { cells: state.cells, player, passes: Math.min(state.passes + 1, 2), ply, history: state.history };
    const cells = state.cells.slice();
    cells[action] = state.player;
    for (const q of this.beside[action]) if (cells[q] === player) {
      const { points, liberties } = this.region(cells, q);
      if (!liberties.size) for (const p of points) cells[p] = -1;
    }
    const history = new Int32Array(2 * REMEMBERED);
    history.set(this.hash(cells));
    history.set(state.history.subarray(0, 2 * REMEMBERED - 2), 2);
    return { cells, player, passes: 0, ply, history };
  }
  // Where the player to move may play, kept in the state.
  points(state) {
    if (state.may) return state.may;
    const { cells, player, history } = state, groups = new Array(this.size), may = new Uint8Array(this.size);
    for (let p = 0; p < this.size; p++) if (cells[p] >= 0 && !groups[p]) {
      const { points, liberties } = this.region(cells, p), group = { owner: cells[p], liberties: liberties.size, high: 0, low: 0 };
      for (const q of points) { const at = this.word(cells[q], q); groups[q] = group; group.high ^= this.words[at]; group.low ^= this.words[at + 1]; }
    }
    for (let p = 0; p < this.size; p++) {
      if (cells[p] >= 0) continue;
      const captured = new Set();
      let lives = false, high = history[0] ^ this.words[this.word(player, p)], low = history[1] ^ this.words[this.word(player, p) + 1];
      for (const q of this.beside[p]) {
        const group = groups[q];
        if (!group) lives = true;
        else if (group.owner === player) lives = lives || group.liberties > 1;
        else if (group.liberties === 1) { lives = true; captured.add(group); }
      }
      for (const group of captured) { high ^= group.high; low ^= group.low; }
      for (let k = 0; lives && k < 2 * REMEMBERED; k += 2) lives = history[k] !== high || history[k + 1] !== low;
      may[p] = lives;
    }
    return (state.may = may);
  }
  legal(state) {
    const may = this.points(state), found = [];
    for (let p = 0; p < this.size; p++) if (may[p]) found.push(p);
    return [...found, this.size];
  }
  planes(state) {
    const planes = super.planes(state), may = this.points(state);
    for (let p = 0; p < this.size; p++) if (state.cells[p] < 0 && !may[p]) planes[2 * this.size + p] = 1;
    if (!state.player) planes.fill(1, 3 * this.size, 4 * this.size);
    if (state.passes) planes.fill(1, 4 * this.size);
    return planes;
  }
  result(state) {
    if (state.passes < 2 && state.ply < this.max_plies) return null;
    const { cells } = state, seen = new Set();
    let lead = -this.komi;
    for (let p = 0; p < this.size; p++) {
      if (cells[p] >= 0) lead += 1 - 2 * cells[p];
      else if (!seen.has(p)) {
        const { points, touched } = this.region(cells, p);
        points.forEach((q) => seen.add(q));
        if (touched.size === 1) lead += points.length * (touched.has(0) ? 1 : -1);
      }
    }
    return Math.sign(lead) * (1 - 2 * state.player);
  }
};
