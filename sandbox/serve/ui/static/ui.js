"use strict";
// Renews the parts of the page that change. It fetches markup from this gateway only, which escaped every value in it;
// scripts, styles and other origins stay shut out by the policy of the page, also inside of that markup.
(() => {
  const EVERY = 2000;
  const SLOWEST = 30000;
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("mcp-sandbox-ui", { createHTML: (markup) => markup })
    : { createHTML: (markup) => markup };
  const said = document.getElementById("renewed");
  const pause = document.getElementById("pause");
  let wait = EVERY;
  let paused = false;
  let timer = 0;

  // Somebody who selects text in a part, to copy it, keeps it as it is until done.
  function used(part) {
    const selected = document.getSelection();
    return selected && !selected.isCollapsed && part.contains(selected.anchorNode);
  }

  function put(fresh) {
    for (const part of fresh.querySelectorAll("[data-part]")) {
      const old = document.getElementById(part.id);
      if (!old || old.outerHTML === part.outerHTML || used(old)) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
      old.replaceWith(document.adoptNode(part));
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
  }

  async function look() {
    try {
      const answer = await fetch("/ui/parts", {
        headers: { "x-mcp-sandbox-ui": "parts" }, credentials: "same-origin", redirect: "error", cache: "no-store",
      });
      if ([401, 403, 404].includes(answer.status)) return location.reload();
      if (!answer.ok) throw new Error(String(answer.status));
      const markup = policy.createHTML(await answer.text());
      put(new DOMParser().parseFromString(markup, "text/html"));
      wait = EVERY;
      said.textContent = "As of " + new Date().toISOString().slice(11, 19) + " UTC";
      document.documentElement.dataset.renewed = String(Number(document.documentElement.dataset.renewed || 0) + 1);
    } catch {
      wait = Math.min(2 * wait, SLOWEST);
      said.textContent = "The gateway does not answer; asking again in " + wait / 1000 + " s";
    }
    next();
  }

  // One question at a time, none while nobody looks.
  function next() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(look, wait);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    said.textContent = paused ? said.textContent.replace("As of", "Paused at") : said.textContent;
    next();
  });
  document.addEventListener("visibilitychange", next);
  next();
})();
