// The segments of a stream, live and settled, newest first; looked at every ten seconds, and when something settled.

import { button, el } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { getJson, streamPath } from "./api.js";
import { failed } from "./watch.js";
import { poll } from "./poll.js";
import { showProblem } from "./problem.js";
import { when } from "./when.js";

const ROWS_MAX = 100;
const EVERY_MILLISECONDS = 10000;

function rowOf(segment) {
  const number = (value) => el("td", { class: "number" }, value);
  return el("tr", {},
    el("td", {}, el("span", { class: `mark ${segment.state}` }, segment.state)),
    number(segment.streamlet === null ? "all" : String(segment.streamlet)),
    number(segment.offsets ? `${count(segment.offsets.start)} → ${count(segment.offsets.stop)}` : "–"),
    number(segment.rows === null ? "–" : count(segment.rows)),
    number(bytes(segment.bytes)),
    number(segment.last_ingest_micros === null ? "–" : when(segment.last_ingest_micros / 1000)),
    el("td", {}, el("code", { class: "path", title: segment.id }, segment.id)));
}

export function segmentsSection(name, signal) {
  const body = el("tbody", {});
  const note = el("p", { class: "waiting" });
  const heads = ["State", "Streamlet", "Offsets", "Records", "Size", "Newest", "Id"];
  const table = el("table", { class: "records", "aria-label": `Segments of ${name}` },
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at > 0 && at < 6 ? "number" : null }, head)))), body);

  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Segments", hidden: true }, table);
  let shown = "";

  async function look() {
    const found = await getJson(streamPath(name, "segments"), { signal });
    const text = JSON.stringify(found);
    if (text === shown) return;
    shown = text;
    body.replaceChildren(...found.slice(-ROWS_MAX).reverse().map(rowOf));
    scroll.hidden = found.length === 0;
    note.textContent = found.length > ROWS_MAX ? `The last ${ROWS_MAX} of ${plural(found.length, "segment")}` : found.length ? "" : "None yet.";
  }

  async function refresh() {
    try {
      await look();
    } catch (error) {
      if (!signal.aborted) showProblem(note, error);
    }
  }

  poll(look, EVERY_MILLISECONDS, signal, failed);
  const node = el("section", { class: "card", "aria-label": "Segments" },
    el("div", { class: "bar" }, el("h2", {}, "Segments"), el("span", { class: "grow" }), button("Refresh", refresh)),
    scroll, note);
  return { node, refresh };
}
