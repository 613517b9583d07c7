// Keeps the page up to date: asks for its part `live` again and again, and puts what the gateway has rendered in place.
"use strict";
(() => {
  const SHORTEST_MS = 2000;
  const LONGEST_MS = 30000;
  const GIVEN_UP_MS = 10000;
  const SHARE = 10; // a gateway that answers slowly is asked less often

  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  let updated = new Date();

  function say(text, isStale) {
    state.hidden = false;
    state.textContent = text;
    state.classList.toggle("stale", isStale);
  }

  function isSelecting() {
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && live.contains(selection.anchorNode);
  }

  // What can have the keyboard's focus, by what stays the same in an update: a link by its address, a table by its place.
  function focusable() {
    const tables = [...live.querySelectorAll(".wide")].map((table, n) => [`table ${n}`, table]);
    return [...tables, ...[...live.querySelectorAll("a")].map((link) => [link.getAttribute("href"), link])];
  }

  function replace(html) {
    const focused = focusable().find(([, element]) => element === document.activeElement);
    const scrolled = [...live.querySelectorAll(".wide")].map((table) => table.scrollLeft);
    live.innerHTML = html;
    if (typeof plots !== "undefined") plots.draw();
    live.querySelectorAll(".wide").forEach((table, n) => { table.scrollLeft = scrolled[n] || 0; });
    if (focused !== undefined) {
      focusable().find(([key]) => key === focused[0])?.[1].focus({ preventScroll: true });
    }
  }

  async function update() {
    const began = performance.now();
    let pause = SHORTEST_MS;
    if (!document.hidden && !isSelecting()) {
      try {
        const answer = await fetch(location.href, {
          headers: { "X-Console-Part": "live" },
          cache: "no-store",
          redirect: "error",
          signal: AbortSignal.timeout(GIVEN_UP_MS),
        });
        if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`);
        replace(await answer.text());
        updated = new Date();
        say("live", false);
      } catch (error) {
        say(`not updated since ${updated.toLocaleTimeString()}: ${error.message}`, true);
      }
      pause = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, SHARE * (performance.now() - began)));
    }
    setTimeout(update, pause);
  }

  say("live", false);
  setTimeout(update, SHORTEST_MS);
})();
