// The back end of web_client.html, here a worker with the rules, the network and the search. Nothing is loaded.
let worker = null, waiting = [];
function ask(what, argument) {
  busy = true;
  return new Promise((done) => { waiting.push(done); worker.postMessage({ what, argument }); });
}
function hear({ data }) {
  if (data.state) { show(data.state); return; }
  busy = waiting.length > 1;
  $("error").textContent = data.error || "";
  if (waiting.length) waiting.shift()();
}
for (const node of document.querySelectorAll(".of-run")) node.hidden = true;
worker = new Worker(URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" })));
worker.onmessage = hear;
worker.onerror = (event) => { $("error").textContent = "this page does not work in this browser: " + event.message; };
ask("begin", $("model").textContent);
