"use strict";
// Player 1 sees the board mirrored on its long diagonal.
GAMES.hex = class extends BoardGame {
  mirrored(cell) { return (cell % this.columns) * this.columns + Math.floor(cell / this.columns); }
  view(player, seen) { return player ? this.mirrored(seen) : seen; }
  planes(state) {
    const planes = super.planes(state);
    if (state.maySwap) planes.fill(1, 2 * this.size);
    return planes;
  }
  legal(state) { return state.maySwap ? [...super.legal(state), this.size] : super.legal(state); }
  play(state, action) {
    if (action < this.size) {
      const isFirst = state.cells.every((owner) => owner < 0);
      return { ...this.put(state, this.view(state.player, action)), maySwap: this.swap && isFirst };
    }
    const cells = this.empty(), stone = state.cells.findIndex((owner) => owner >= 0);
    cells[this.mirrored(stone)] = state.player;
    return { cells, player: 1 - state.player };
  }
  result({ cells, player }) {
    const mover = 1 - player, seen = new Uint8Array(this.size), stack = [];
    const visit = (r, c) => {
      if (!this.inside(r, c)) return;
      const v = r * this.columns + c;
      if (!seen[v] && cells[this.view(mover, v)] === mover) { seen[v] = 1; stack.push(v); }
    };
    for (let c = 0; c < this.columns; c++) visit(0, c);
    while (stack.length) {
      const v = stack.pop(), r = Math.floor(v / this.columns), c = v % this.columns;
      if (r === this.rows - 1) return -1;
      for (const [dr, dc] of [[1, 0], [1, -1], [0, 1], [0, -1], [-1, 0], [-1, 1]]) visit(r + dr, c + dc);
    }
    return null;
  }
  // A shortest chain, found as in az_mpi/games/winning_cells.py.
  winningCells(players) {
    for (const player of [0, 1]) {
      const own = (r, c) => (player ? players[c][r] : players[r][c]) === player, from = new Map(), queue = [];
      const visit = (cell, before) => { if (!from.has(String(cell))) { from.set(String(cell), before); queue.push(cell); } };
      for (let c = 0; c < this.columns; c++) if (own(0, c)) visit([0, c], null);
      for (let cell of queue) {
        if (cell[0] === this.rows - 1) {
          const path = [];
          for (; cell; cell = from.get(String(cell))) path.push(player ? [cell[1], cell[0]] : cell);
          return path;
        }
        for (const [dr, dc] of [[1, 0], [1, -1], [0, 1], [0, -1], [-1, 0], [-1, 1]]) {
          const r = cell[0] + dr, c = cell[1] + dc;
          if (this.inside(r, c) && own(r, c)) visit([r, c], cell);
        }
      }
    }
    return [];
  }
  text(state, action) { return action === this.size ? "swap" : super.text(state, action); }
};
