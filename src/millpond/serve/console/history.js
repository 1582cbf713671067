// What was asked in this tab, newest first. It holds conditions, which may be private, so it ends with the tab.

import { button, el } from "./dom.js";

const KEPT = "millpond.queries";
const MOST = 20;

function past() {
  return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
}

export function remember(query) {
  const others = past().filter((other) => JSON.stringify(other) !== JSON.stringify(query));
  sessionStorage.setItem(KEPT, JSON.stringify([query, ...others].slice(0, MOST)));
}

function textOf({ stream, where, columns, limit }) {
  return `${stream}${where ? ` where ${where}` : ""}${columns ? ` · ${columns}` : ""} · limit ${limit}`;
}

export function historyList(recall) {
  const list = el("ul", { class: "history" });
  const node = el("section", { class: "card", "aria-label": "History" },
    el("div", { class: "bar" }, el("h2", {}, "History"), el("span", { class: "grow" }), button("Clear", () => {
      sessionStorage.removeItem(KEPT);
      refresh();
    })), list);
  function refresh() {
    list.replaceChildren(...past().map((query) => el("li", {}, button(textOf(query), () => recall(query), { class: "link" }))));
    node.hidden = list.children.length === 0;
  }
  refresh();
  return { node, refresh };
}
