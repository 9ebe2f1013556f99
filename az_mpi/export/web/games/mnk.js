"use strict";
GAMES.mnk = class extends BoardGame {
  play(state, action) { return this.put(state, action); }
  winningCells(players) { return this.lines(players, this.k, this.exact); }
  // The result for the player to move, or null while the game continues. Only the one who just moved can have won.
  result({ cells, last }) {
    if (last !== undefined && this.hasLine(cells, last, this.k, this.exact)) return -1;
    return cells.includes(-1) ? null : 0;
  }
};
