// The pipelines that have reported: what each reads and writes, how far behind it is, and its last batch.

import { el, setAttribute, setText } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { getJson } from "./api.js";
import { poll } from "./poll.js";
import { showProblem } from "./problem.js";
import { streamHref } from "./places.js";

const LOOK_MILLISECONDS = 1000;
// A runner tells how it does every few seconds; after so many without a word it is gone.
const SILENT_SECONDS = 15;

const TITLES = ["Pipeline", "From", "To", "State", "Behind", "Last batch", "Records", "Restarts"];

function stateOf(report) {
  const ended = report.state === "stopped" || report.state === "failed";
  if (!ended && report.heard_seconds > SILENT_SECONDS) return `not heard of for ${duration(report.heard_seconds)}`;
  return report.state === "waiting" ? "failed, starts again" : report.state;
}

function batchOf(report) {
  if (report.batch < 0) return "–";
  return `${count(report.batch)}: ${plural(report.batch_rows, "record")} in ${report.batch_seconds.toFixed(1)} s`;
}

function makeRow(report) {
  const parts = Object.fromEntries(["state", "behind", "batch", "rows", "restarts"].map((name) => [name, el("span", {})]));
  const sources = el("span", {});
  const failure = el("small", { class: "bad" });
  const cells = [
    [report.name], [sources], [el("a", { href: streamHref(report.sink) }, report.sink)],
    [parts.state, " ", failure], [parts.behind], [parts.batch], [parts.rows], [parts.restarts],
  ];
  const row = el("tr", { role: "row" }, cells.map((cell, at) =>
    el("td", { role: "cell", class: at > 3 ? "number" : null, "data-title": TITLES[at] }, cell)));
  return { row, parts, sources, failure };
}

function updateRow({ parts, sources, failure }, report) {
  const wanted = report.sources.join("\n");
  if (sources.dataset.names !== wanted) {
    sources.dataset.names = wanted;
    sources.replaceChildren(...report.sources.flatMap((name, at) =>
      [at ? " + " : "", el("a", { href: streamHref(name) }, name)]));
  }
  setText(parts.state, stateOf(report));
  parts.state.classList.toggle("bad", stateOf(report) !== report.state || report.state === "failed");
  setText(failure, report.failure);
  setText(parts.behind, count(report.behind));
  setAttribute(parts.behind, "title", plural(report.behind, "record"));
  setText(parts.batch, batchOf(report));
  setText(parts.rows, count(report.rows));
  setText(parts.restarts, count(report.restarts));
}

export function pipelinesPage(main, signal) {
  const rows = new Map();
  const total = el("p", { class: "total", role: "status", "aria-live": "polite" });
  const message = el("div", {});
  const body = el("tbody", { role: "rowgroup" });
  const table = el("table", { role: "table", "aria-label": "Pipelines" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, TITLES.map((title, at) =>
      el("th", { role: "columnheader", scope: "col", class: at > 3 ? "number" : null }, title)))), body);
  const none = el("section", { class: "empty" },
    el("h2", {}, "No pipeline has reported"),
    el("p", {}, "A pipeline is a function from streams to streams. Declare one in a file, and run it:"),
    el("pre", { tabindex: "0" }, el("code", {}, `millpond run pipelines.py --pond ${location.origin}`)));
  const card = el("div", { class: "card flush" }, table);

  async function look() {
    const reports = await getJson("/v1/pipelines", { signal });
    message.replaceChildren();
    const shown = reports.map((report) => {
      const key = `${report.sink}\n${report.name}`;
      if (!rows.has(key)) rows.set(key, makeRow(report));
      updateRow(rows.get(key), report);
      return rows.get(key).row;
    });
    shown.forEach((row, at) => {
      if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
    });
    while (body.children.length > shown.length) body.lastElementChild.remove();
    setText(total, plural(reports.length, "pipeline"));
    card.hidden = reports.length === 0;
    none.hidden = reports.length > 0;
  }

  card.hidden = none.hidden = true;
  main.replaceChildren(el("div", { class: "bar" }, el("h1", {}, "Pipelines"), total), message, card, none);
  poll(look, LOOK_MILLISECONDS, signal, (error) => showProblem(message, error));
}
