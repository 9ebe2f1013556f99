"use strict";
GAMES.connect4 = class extends BoardGame {
  legal(state) { return Array.from({ length: this.columns }, (_, column) => column).filter((column) => state.cells[column] < 0); }
  play(state, action) {
    let cell = action;
    while (cell + this.columns < this.size && state.cells[cell + this.columns] < 0) cell += this.columns;
    return this.put(state, cell);
  }
  result({ cells, last }) {
    if (last !== undefined && this.hasLine(cells, last, 4)) return -1;
    return cells.includes(-1) ? null : 0;
  }
  winningCells(players) { return this.lines(players, 4); }
  text(state, action) { return String(action + 1); }
};
