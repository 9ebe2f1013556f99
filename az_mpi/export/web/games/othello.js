"use strict";
GAMES.othello = class extends BoardGame {
  initial() {
    const cells = this.empty(), middle = this.columns * (this.rows / 2 - 1) + this.columns / 2;
    cells[middle] = cells[middle + this.columns - 1] = 0;
    cells[middle - 1] = cells[middle + this.columns] = 1;
    return { cells, player: 0 };
  }
  // The pieces that turn when a player puts one on an empty cell.
  turned(cells, player, cell) {
    const found = [], row = Math.floor(cell / this.columns), column = cell % this.columns;
    for (const dr of [-1, 0, 1]) for (const dc of [-1, 0, 1]) {
      const line = [];
      let r = row + dr, c = column + dc;
      for (; (dr || dc) && this.inside(r, c) && cells[r * this.columns + c] === 1 - player; r += dr, c += dc) line.push(r * this.columns + c);
      if (line.length && this.inside(r, c) && cells[r * this.columns + c] === player) found.push(...line);
    }
    return found;
  }
  moves(cells, player) {
    const found = [];
    for (let cell = 0; cell < this.size; cell++) if (cells[cell] < 0 && this.turned(cells, player, cell).length) found.push(cell);
    return found;
  }
  legal({ cells, player }) {
    const found = this.moves(cells, player);
    return found.length ? found : [this.size];
  }
  play(state, action) {
    if (action === this.size) return { cells: state.cells, player: 1 - state.player };
    const turned = this.turned(state.cells, state.player, action), after = this.put(state, action);
    for (const cell of turned) after.cells[cell] = state.player;
    return after;
  }
  result({ cells, player }) {
    if (this.moves(cells, player).length || this.moves(cells, 1 - player).length) return null;
    let lead = 0;
    for (const owner of cells) lead += owner < 0 ? 0 : owner === player ? 1 : -1;
    return Math.sign(lead);
  }
};
