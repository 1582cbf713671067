// The list of streams: sortable, filterable, kept up to date in place. A row's elements are made once and then only
// changed, and only so many rows are on the page, so that a thousand streams do not slow it down.

import { button, el, setAttribute, setText } from "./dom.js";
import { bytes, count, plural, rate, short } from "./format.js";
import { createStream } from "./create.js";
import { guard } from "./session.js";
import { offsetsCell, settleText } from "./standing.js";
import { streamHref } from "./places.js";
import { watch } from "./watch.js";

const ROWS_STEP = 100;

const COLUMNS = [
  { id: "name", title: "Stream", value: (stream) => stream.name, text: true },
  { id: "rate", title: "Rate", value: (stream) => stream.rate ?? -1 },
  { id: "live", title: "Live", value: (stream) => stream.bytes_live ?? -1 },
  { id: "settled", title: "Settled", value: (stream) => stream.bytes_settled ?? -1 },
  { id: "head", title: "Boundary → head", value: (stream) => (stream.rows_live ?? -1) },
  { id: "settling", title: "Last settled", value: (stream) => stream.settling?.last_micros ?? -1 },
];

function makeRow(name) {
  const cell = (column, ...parts) =>
    el("td", { role: "cell", class: `c-${column.id}${column.text ? "" : " number"}`, "data-title": column.title }, parts);
  const parts = {
    about: el("small", {}),
    rate: el("span", {}),
    live: el("span", {}),
    liveBytes: el("small", {}),
    settled: el("span", {}),
    settledBytes: el("small", {}),
    offsets: offsetsCell(),
    settling: el("span", { class: "settling" }),
  };
  const [nameColumn, rateColumn, live, settled, head, settling] = COLUMNS;
  const row = el("tr", { role: "row" },
    cell(nameColumn, el("a", { href: streamHref(name) }, name), parts.about),
    cell(rateColumn, parts.rate),
    cell(live, parts.live, parts.liveBytes),
    cell(settled, parts.settled, parts.settledBytes),
    cell(head, parts.offsets.node),
    cell(settling, parts.settling),
  );
  return { row, parts };
}

function updateRow({ row, parts }, stream) {
  setText(parts.about, `${stream.durability} · ${plural(stream.streamlets, "streamlet")}`);
  setText(parts.rate, stream.known ? rate(stream.rate) : "–");
  row.classList.toggle("busy", (stream.rate ?? 0) > 0);
  if (!stream.known) return;
  setText(parts.live, short(stream.rows_live));
  setAttribute(parts.live, "title", plural(stream.rows_live, "record"));
  setText(parts.liveBytes, bytes(stream.bytes_live));
  setText(parts.settled, short(stream.rows_settled));
  setAttribute(parts.settled, "title", `${plural(stream.rows_settled, "record")} in ${plural(stream.objects, "object")}`);
  setText(parts.settledBytes, bytes(stream.bytes_settled));
  parts.offsets.update(stream.boundary, stream.head);
  const [text, failing] = settleText(stream);
  setText(parts.settling, text);
  parts.settling.classList.toggle("bad", failing);
  setAttribute(parts.settling, "title", failing ? stream.settling.failure : null);
}

function emptyState(main) {
  const command = `curl -X PUT ${location.origin}/v1/streams/grid/meters \\
  -H 'Content-Type: application/json' \\
  -d '{"schema": "vid string, temp double, at timestamp", "keys": ["vid"]}'`;
  main.replaceChildren(
    el("section", { class: "empty" },
      el("h1", {}, "No streams yet"),
      el("p", {}, "Create the first one here, or with curl:"),
      el("pre", { tabindex: "0" }, el("code", {}, command)),
      guard(button("New stream…", createStream, { class: "primary", "data-key": "n" }), "admin"),
    ),
  );
}

export function streamsPage(main, signal) {
  const rows = new Map();
  const state = { sort: "name", down: false, filter: "", most: ROWS_STEP };
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", "data-key": "/" });
  const total = el("p", { class: "total", role: "status", "aria-live": "polite" });
  const body = el("tbody", { role: "rowgroup" });
  const more = button("", () => {
    state.most += ROWS_STEP;
    show();
  });
  const headers = COLUMNS.map((column) => {
    const press = button(column.title, () => {
      state.down = state.sort === column.id ? !state.down : !column.text;
      state.sort = column.id;
      show();
    });
    return el("th", { role: "columnheader", scope: "col", class: column.text ? null : "number" }, press);
  });
  const table = el("table", { class: "streams", role: "table", "aria-label": "Streams" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, headers)), body);

  function chosen() {
    const wanted = state.filter.toLowerCase();
    const { value } = COLUMNS.find((column) => column.id === state.sort);
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (state.down ? -1 : 1) || (a.name < b.name ? -1 : 1);
    };
    return watch.streams.filter((stream) => stream.name.toLowerCase().includes(wanted)).sort(order);
  }

  function show() {
    if (watch.streams === null) return;
    if (watch.streams.length === 0) {
      if (!main.querySelector(".empty")) emptyState(main);
      return;
    }
    if (!table.isConnected) main.replaceChildren(...page);
    const found = chosen();
    const wanted = found.slice(0, state.most).map((stream) => {
      if (!rows.has(stream.name)) rows.set(stream.name, makeRow(stream.name));
      updateRow(rows.get(stream.name), stream);
      return rows.get(stream.name).row;
    });
    // Only what moved is moved: the focus and the selection of a person stay where they are.
    wanted.forEach((row, at) => {
      if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
    });
    while (body.children.length > wanted.length) body.lastElementChild.remove();
    headers.forEach((header, at) => {
      setAttribute(header, "aria-sort", COLUMNS[at].id === state.sort ? (state.down ? "descending" : "ascending") : null);
    });
    more.hidden = found.length <= state.most;
    setText(more, `Show ${Math.min(ROWS_STEP, found.length - state.most)} more of ${count(found.length)}`);
    setText(total, found.length === watch.streams.length
      ? plural(found.length, "stream")
      : `${count(found.length)} of ${plural(watch.streams.length, "stream")}`);
  }

  const page = [
    el("div", { class: "bar" }, el("h1", {}, "Streams"), total, filter,
      guard(button("New stream…", createStream, { class: "primary", "data-key": "n" }), "admin")),
    el("div", { class: "card flush" }, table),
    el("div", { class: "row" }, more),
  ];
  filter.addEventListener("input", () => {
    state.filter = filter.value.trim();
    state.most = ROWS_STEP;
    show();
  });
  watch.shown = () => [...body.querySelectorAll(".c-name a")].map((link) => link.textContent);
  watch.addEventListener("status", show, { signal });
  main.replaceChildren(el("p", { class: "waiting" }, "Looking…"));
  show();
}
