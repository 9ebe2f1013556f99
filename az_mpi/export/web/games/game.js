"use strict";
// What the games share. A state is {cells: Int8Array, the owner of each cell's piece or -1; player: who is to move; …} and
// is never changed. Cells are counted row by row from the top left. The rules are those of az_mpi/games, to the order of
// the actions. spec: {rows, columns, num_planes; initial_board: the `Board` of az_mpi/games/base.py; and the game's own parameters}.
class BoardGame {
  constructor(spec) {
    Object.assign(this, spec);
    this.size = spec.rows * spec.columns;
  }
  empty() { return new Int8Array(this.size).fill(-1); }
  initial() { return { cells: this.empty(), player: 0 }; }
  // The board's cell that a player sees as cell `seen` of the network's input; a second turn leads back.
  view(player, seen) { return seen; }
  // The network's input: own pieces, the other player's; games may add more.
  planes(state) {
    const planes = new Float64Array(this.num_planes * this.size);
    for (let seen = 0; seen < this.size; seen++) {
      const owner = state.cells[this.view(state.player, seen)];
      if (owner >= 0) planes[(owner === state.player ? 0 : this.size) + seen] = 1;
    }
    return planes;
  }
  // A state's actions in order; never asked of a state with a result.
  legal(state) {
    const found = [];
    for (let seen = 0; seen < this.size; seen++) if (state.cells[this.view(state.player, seen)] < 0) found.push(seen);
    return found;
  }
  put(state, cell) {
    const cells = state.cells.slice();
    cells[cell] = state.player;
    return { cells, player: 1 - state.player, last: cell };
  }
  cellName(cell) { const { columns, rows } = this.initial_board; return (columns[cell % this.columns] || "") + (rows[Math.floor(cell / this.columns)] || ""); }
  text(state, action) { return action < this.size ? this.cellName(this.view(state.player, action)) : "pass"; }
  board(state) {
    const players = Array.from({ length: this.rows }, (_, r) => Array.from(state.cells.subarray(r * this.columns, (r + 1) * this.columns)));
    const won = this.result(state) === null ? [] : this.winningCells(players).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return { ...this.initial_board, players, won };
  }
  // The cells, [row, column], of the line or chain that has won a game that is over.
  winningCells(players) { return []; }
  // Whether a limit of its length alone has ended a game.
  isCut(state) { return false; }
  // The cells of all lines of k pieces of one player; exact: of no more than k.
  lines(players, k, exact = false) {
    const found = new Map();
    for (let r = 0; r < this.rows; r++) for (let c = 0; c < this.columns; c++) for (const [dr, dc] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      const run = Array.from({ length: k }, (_, step) => [r + step * dr, c + step * dc]), isOwn = ([y, x]) => this.inside(y, x) && players[y][x] === players[r][c];
      const isLonger = isOwn([r - dr, c - dc]) || isOwn([r + k * dr, c + k * dc]);
      if (players[r][c] >= 0 && run.every(isOwn) && !(exact && isLonger)) for (const cell of run) found.set(String(cell), cell);
    }
    return [...found.values()];
  }
  // Whether k pieces of one player, or more unless `exact`, lie in a row through this cell.
  hasLine(cells, cell, k, exact = false) {
    const row = Math.floor(cell / this.columns), column = cell % this.columns;
    return [[0, 1], [1, 0], [1, 1], [1, -1]].some(([dr, dc]) => {
      let length = 1;
      for (const sign of [1, -1])
        for (let r = row + sign * dr, c = column + sign * dc; this.inside(r, c) && cells[r * this.columns + c] === cells[cell]; r += sign * dr, c += sign * dc) length++;
      return exact ? length === k : length >= k;
    });
  }
  inside(r, c) { return r >= 0 && r < this.rows && c >= 0 && c < this.columns; }
}
const GAMES = {};
