// The back end of web_client.html, here the server of `az_mpi web`: it defines ask(what, argument) and calls show(state).
const token = new URLSearchParams(location.search).get("token") || "";
const GONE = "az_mpi web has ended, or cannot be reached";
async function ask(what, argument) {
  busy = true; let error = null;
  try {
    const answer = await fetch("/ask", { method: "POST", headers: { "X-Token": token, "Content-Type": "application/json" }, body: JSON.stringify({ what, argument }) });
    error = answer.ok ? (await answer.json()).error : await answer.text();
  } catch (problem) { error = GONE; }
  busy = false; $("error").textContent = error || "";
}
async function listen() {
  let version = 0;
  for (;;) {
    try {
      const answer = await fetch("/state?version=" + version, { headers: { "X-Token": token } });
      if (!answer.ok) { $("error").textContent = await answer.text(); return; }
      if ($("error").textContent === GONE) $("error").textContent = "";
      const next = await answer.json();
      if (next.version > version) { version = next.version; queueMicrotask(() => show(next)); } // an error of the page is none of the server's
    } catch (problem) { $("error").textContent = GONE; await new Promise((go) => setTimeout(go, 1500)); }
  }
}
listen();
