"use strict";
// PUCT over one tree: az_mpi/search/puct.py, root.py and tree.py without noise, to the same moves. Where Python rounds to
// float32, Math.fround does here.
const LAST = 1e6;

class Search {
  // evaluate: function of a state -> {policy: logits of all actions, value}. settings: {c_puct, c_puct_base, fpu_reduction}.
  constructor(game, evaluate, settings) {
    this.game = game; this.evaluate = evaluate; this.settings = settings;
  }
  reset(state) { this.root = this.node(state); this.win = -1; }
  get simulations() { return Math.max(this.root.visits - 1, 0); }
  get value() { return this.root.exact ? this.root.exactValue : this.root.visits ? Math.fround(this.root.sum / this.root.visits) : 0; }
  node(state) {
    const result = this.game.result(state);
    return { state, player: state.player, visits: 0, sum: 0, actions: [], exact: result !== null, exactValue: result === null ? 0 : result };
  }
  // One simulation.
  step() {
    const path = [];
    let node = this.root, action = -1;
    while (node.actions.length && !node.exact) {
      const e = this.best(node);
      path.push([node, e]);
      if (!node.children[e]) { action = node.actions[e]; break; }
      node = node.children[e];
    }
    if (action < 0 && node.exact) { this.backup(path, node, node.exactValue); return; }
    if (action >= 0) {
      const [parent, e] = path[path.length - 1];
      node = parent.children[e] = this.node(this.game.play(parent.state, action));
    }
    if (node.exact) { this.backup(path, node, node.exactValue); this.prove(path); return; }
    const { policy, value } = this.evaluate(node.state);
    this.expand(node, policy);
    this.backup(path, node, Math.fround(value));
    if (node === this.root) this.lookForWins();
  }
  // Prove the move of the root that wins at once, of several the one with the largest prior: `win` is its edge, or -1.
  lookForWins() {
    const root = this.root, after = root.actions.map((action) => this.game.play(root.state, action));
    this.win = -1;
    after.forEach((state, e) => {
      const result = this.game.result(state);
      if (result === (state.player === root.player ? 1 : -1) && (this.win < 0 || root.priors[e] > root.priors[this.win])) this.win = e;
    });
    if (this.win < 0 || root.children[this.win]) return;
    const path = [[root, this.win]], child = root.children[this.win] = this.node(after[this.win]);
    this.backup(path, child, child.exactValue);
    this.prove(path);
  }
  expand(node, logits) {
    const actions = this.game.legal(node.state), count = actions.length, priors = new Float32Array(count);
    let highest = -Infinity, total = 0;
    for (const action of actions) highest = Math.max(highest, Math.fround(logits[action]));
    for (let e = 0; e < count; e++) {
      const weight = Math.exp(Math.fround(logits[actions[e]]) - highest);
      priors[e] = weight; total += weight;
    }
    for (let e = 0; e < count; e++) priors[e] /= total;
    Object.assign(node, { actions, priors, edgeVisits: new Int32Array(count), edgeSums: new Float64Array(count), children: new Array(count).fill(null) });
  }
  // The result behind edge e for the player to move at node, or null.
  known(node, e) {
    const child = node.children[e];
    return child && child.exact ? (child.player === node.player ? child.exactValue : -child.exactValue) : null;
  }
  best(node) {
    const { priors, edgeVisits, edgeSums } = node, { c_puct, c_puct_base, fpu_reduction } = this.settings;
    let visited = 0;
    for (let e = 0; e < priors.length; e++) if (edgeVisits[e] > 0) visited += priors[e];
    const unvisited = node.sum / node.visits - fpu_reduction * Math.sqrt(visited);
    const scale = Math.fround((Math.log((1 + node.visits + c_puct_base) / c_puct_base) + c_puct) * Math.sqrt(node.visits));
    let best = 0, most = -Infinity;
    for (let e = 0; e < priors.length; e++) {
      let q = unvisited;
      if (edgeVisits[e] > 0) {
        const known = this.known(node, e);
        q = known === null ? edgeSums[e] / edgeVisits[e] : known > -1 ? known : -LAST;
      }
      const score = q + Math.fround(scale * priors[e]) / (1 + edgeVisits[e]);
      if (score > most) { best = e; most = score; }
    }
    return best;
  }
  backup(path, leaf, value) {
    leaf.visits++; leaf.sum += value;
    for (let depth = path.length - 1; depth >= 0; depth--) {
      const [node, e] = path[depth], signed = node.player === leaf.player ? value : -value;
      node.edgeVisits[e]++; node.edgeSums[e] += signed; node.visits++; node.sum += signed;
    }
  }
  // After a simulation that ended at a new leaf where the game is over.
  prove(path) {
    for (let depth = path.length - 1; depth >= 0; depth--) {
      const [node] = path[depth];
      let best = -Infinity, unknown = false;
      for (let e = 0; e < node.actions.length; e++) {
        const value = this.known(node, e);
        if (value === null) unknown = true; else best = Math.max(best, value);
      }
      if (unknown && best < 1) return;
      node.exact = true; node.exactValue = best;
    }
  }
  // Visits of the root's moves, 0 for those proven to be worse. If only proven losses were tried, the others' priors.
  counts() {
    const root = this.root, good = root.actions.map((_, e) => {
      const known = this.known(root, e);
      return root.exact ? known !== null && known >= root.exactValue : known === null || known > -1;
    });
    const tried = good.some((is, e) => is && root.edgeVisits[e] > 0);
    if (!tried && !root.exact && root.actions.some((_, e) => root.edgeVisits[e] > 0)) {  // a new root has no edgeVisits
      return root.actions.map((_, e) => (good[e] ? Math.max(root.priors[e], 1e-30) : 0));
    }
    return root.actions.map((_, e) => (tried && !good[e] ? 0 : root.edgeVisits[e]));
  }
  choose() {
    if (this.win >= 0) return this.root.actions[this.win];
    const counts = this.counts();
    return this.root.actions[counts.indexOf(Math.max(...counts))];
  }
  // Play a move: what was searched below it stays.
  advance(action) {
    const e = this.root.actions.indexOf(action);
    const child = e < 0 ? null : this.root.children[e];
    this.root = child || this.node(this.game.play(this.root.state, action));
    this.lookForWins();
  }
  // What the search says of each move, best first: see az_mpi/search/reading.py.
  moves() {
    const root = this.root, counts = this.counts(), total = counts.reduce((a, b) => a + b, 0) || 1;
    const rows = root.actions.map((action, e) => {
      const known = this.known(root, e), visits = root.edgeVisits[e];
      const value = !visits ? null : known !== null ? known : root.edgeSums[e] / visits;
      return { action, visits, share: counts[e] / total, value, exact: visits > 0 && known !== null, prior: root.priors[e], variation: [action, ...this.variation(root.children[e])] };
    });
    let first = root.actions.length ? this.choose() : null;
    if (root.exact && root.exactValue) {
      const reach = rows.filter((row) => row.exact && row.value === root.exactValue), sign = root.exactValue > 0 ? 1 : -1;
      const order = (row) => sign * row.variation.length - (row.action === first ? 0.5 : 0);
      if (reach.length) first = reach.reduce((best, row) => (order(row) < order(best) ? row : best)).action;
    }
    return rows.sort((a, b) => (b.action === first) - (a.action === first) || b.share - a.share || (a.share ? 0 : b.visits - a.visits || b.prior - a.prior));
  }
  // The moves of a proof from a node on: of a win the fewest, else the most; -1 where none is known.
  length(node) {
    if (!node || !node.exact) return -1;
    const below = node.actions.flatMap((_, e) => (this.known(node, e) === node.exactValue ? [this.length(node.children[e]) + 1] : []));
    return below.length ? (node.exactValue > 0 ? Math.min(...below) : Math.max(...below)) : 0;
  }
  variation(node) {
    const actions = [];
    while (node && node.actions.length) {
      let best = -1, most = 0;
      const length = this.length(node);
      for (let e = 0; e < node.actions.length; e++)
        // Of equals the likeliest, as Python's order of edges has it.
        if ((node.edgeVisits[e] > most || best >= 0 && node.edgeVisits[e] === most && node.priors[e] > node.priors[best]) && (!node.exact || this.known(node, e) === node.exactValue && this.length(node.children[e]) + 1 === length)) { best = e; most = node.edgeVisits[e]; }
      if (best < 0) break;
      actions.push(node.actions[best]);
      node = node.children[best];
    }
    return actions;
  }
}
