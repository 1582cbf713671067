// Keys that work on every page. None is taken while a person types or a dialog is open.

import { el } from "./dom.js";
import { openDialog } from "./dialog.js";

// A control on the page that has data-key="x" is focused (a field) or pressed (anything else) by that key.
const KEYS = [
  ["/", "go to the filter"],
  ["n", "new stream"],
  ["p", "pause or resume the tail"],
  ["g s", "streams"],
  ["g q", "query"],
  ["g p", "pipelines"],
  ["g a", "activity"],
  ["g t", "tokens"],
  ["Ctrl Enter", "run the query, from any of its fields"],
  ["Esc", "close a dialog, leave a field"],
  ["?", "these keys"],
];
const PAGES = { s: "streams", q: "query", p: "pipelines", a: "activity", t: "tokens" };
// A second key comes soon after the first, or it is a key of its own.
const PAIR_MILLISECONDS = 1500;

export function showKeys() {
  openDialog("Keys", {
    body: el("dl", { class: "keys" }, KEYS.map(([keys, what]) => [
      el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))),
      el("dd", {}, what),
    ]).flat()),
  });
}

function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select") !== null;
}

function press(key) {
  const control = [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key);
  if (!control) return false;
  if (control.matches("input, textarea, select")) control.focus();
  else control.click();
  return true;
}

export function listenToKeys() {
  let goAt = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const second = performance.now() - goAt < PAIR_MILLISECONDS;
    goAt = event.key === "g" ? performance.now() : -Infinity;
    if (second && event.key in PAGES) location.hash = `#/${PAGES[event.key]}`;
    else if (event.key === "?") showKeys();
    else if (!press(event.key)) return;
    event.preventDefault();
  });
}
