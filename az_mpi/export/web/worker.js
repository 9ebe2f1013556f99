"use strict";
let game = null, turning = false;
function turn() {
  turning = game.hasToThink;
  if (!turning) return;
  game.turn();
  setTimeout(turn, game.isNetworksTurn && Date.now() - game.begun < PACE_MS ? 20 : 0);
}
onmessage = ({ data: { what, argument } }) => {
  let error = null;
  try {
    if (what === "begin") game = new OfflineGame(JSON.parse(argument), (state) => postMessage({ state }));
    else error = game["do_" + what](argument) || null;
    game.publish();
  } catch (problem) { error = String(problem); }
  postMessage({ error });
  if (game && !turning) turn();
};
