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
  text(state, action) { return action === this.size ? "swap" : super.text(state, action); }
};
