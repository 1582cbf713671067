// A table of records. Columns are those of the records, in the order in which they first appear; system columns last.

import { button, el } from "./dom.js";
import { openDialog } from "./dialog.js";
import { shown } from "./format.js";
import { when } from "./when.js";

const SYSTEM = ["_streamlet", "_offset", "_ingest_time"];
// Longer values are cut in the table; pressing one shows the whole of it.
const TEXT_MAX = 40;

function isNumber(value) {
  return typeof value === "number" || typeof value === "bigint";
}

function cellOf(column, value) {
  if (column === "_ingest_time" && typeof value === "string") return el("td", { class: "number" }, when(Date.parse(value)));
  const text = shown(value);
  const kind = value === null || value === undefined ? "null" : isNumber(value) ? "number" : null;
  if (text.length <= TEXT_MAX) return el("td", { class: kind }, text);
  const whole = () => openDialog(column, { body: el("pre", { tabindex: "0" }, shown(value, 2)) });
  return el("td", {}, button(`${text.slice(0, TEXT_MAX)}…`, whole, { class: "value", title: "Show the whole value" }));
}

export function recordsTable(label) {
  let columns = [];
  const head = el("tr", {});
  const body = el("tbody", {});
  const table = el("table", { class: "records", "aria-label": label }, el("thead", {}, head), body);
  // It scrolls by itself, so that the page does not; a region that scrolls can be focused.
  const node = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);

  function rowOf(record) {
    return el("tr", {}, columns.map((column) => cellOf(column, record[column])));
  }

  // True if there are columns that were not there before.
  function widen(records) {
    const known = new Set(columns);
    for (const record of records) for (const column of Object.keys(record)) known.add(column);
    if (known.size === columns.length) return false;
    columns = [...[...known].filter((column) => !SYSTEM.includes(column)), ...SYSTEM.filter((column) => known.has(column))];
    const numeric = (column) => SYSTEM.includes(column) || isNumber(records.find((record) => (record[column] ?? null) !== null)?.[column]);
    head.replaceChildren(...columns.map((column) => el("th", { scope: "col", class: numeric(column) ? "number" : null }, column)));
    return true;
  }

  return {
    node,
    show(records) {
      columns = [];
      head.replaceChildren();
      widen(records);
      body.replaceChildren(...records.map(rowOf));
    },
    // Puts `fresh` on top, newest first; `all` is everything that is to be seen then.
    push(fresh, all) {
      if (widen(fresh)) body.replaceChildren(...all.map(rowOf));
      else body.prepend(...fresh.map(rowOf));
      while (body.children.length > all.length) body.lastElementChild.remove();
    },
  };
}
