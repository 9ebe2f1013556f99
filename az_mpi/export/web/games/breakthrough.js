"use strict";
// Action 3 cell + direction, as the player to move sees the board: player 1 sees it turned by half a turn.
GAMES.breakthrough = class extends BoardGame {
  initial() {
    const pieces = (this.rows >= 6 ? 2 : 1) * this.columns;
    return { cells: this.empty().fill(1, 0, pieces).fill(0, this.size - pieces), player: 0 };
  }
  view(player, seen) { return player ? this.size - 1 - seen : seen; }
  legal({ cells, player }) {
    const found = [], at = (seen) => cells[this.view(player, seen)];
    for (let start = this.columns; start < this.size; start++) {
      if (at(start) !== player) continue;
      const column = start % this.columns, ahead = start - this.columns;
      if (column > 0 && at(ahead - 1) !== player) found.push(3 * start);
      if (at(ahead) < 0) found.push(3 * start + 1);
      if (column < this.columns - 1 && at(ahead + 1) !== player) found.push(3 * start + 2);
    }
    return found;
  }
  fromTo(state, action) {
    const start = Math.floor(action / 3);
    return [start, start - this.columns + (action % 3) - 1].map((seen) => this.view(state.player, seen));
  }
  play(state, action) {
    const [from, to] = this.fromTo(state, action), after = this.put(state, to);
    after.cells[from] = -1;
    return after;
  }
  result({ cells, player }) {
    const mover = 1 - player;
    for (let seen = 0; seen < this.columns; seen++) if (cells[this.view(mover, seen)] === mover) return -1;
    return cells.includes(player) ? null : -1;
  }
  text(state, action) { return this.fromTo(state, action).map((cell) => this.cellName(cell)).join(""); }
};
