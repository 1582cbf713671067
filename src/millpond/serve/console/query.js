// The query box: a scan, what it took, and the result to keep. What was asked is in the address, so that it can be
// linked to, and in the history of this tab.

import { button, el, field, setText } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { exactJson, getJson, lines, Problem, request, streamPath, withQuery } from "./api.js";
import { historyList, remember } from "./history.js";
import { objectMap } from "./map.js";
import { recordsTable } from "./records.js";
import { showProblem } from "./problem.js";
import { watch } from "./watch.js";

const LIMIT = 100;
// A table longer than this is no longer read by a person; it can be downloaded.
const LIMIT_MAX = 10000;
const FORMATS = [["csv", "CSV"], ["ndjson", "NDJSON"], ["arrow", "Arrow"]];

export function explainText(report) {
  const skipped = report.objects_total - report.objects_read;
  const reasons = Object.entries(report.skipped_by).filter(([, number]) => number > 0).map(([by, number]) => `${count(number)} by ${by}`);
  return [
    `${count(report.objects_read)} of ${plural(report.objects_total, "object")} read (${bytes(report.bytes_read)} of ${bytes(report.bytes_total)})`,
    skipped > 0 && `${count(skipped)} skipped${reasons.length ? `: ${reasons.join(", ")}` : ""}`,
    `${plural(report.rows_live, "live record")} looked at`,
  ].filter(Boolean).join(" · ");
}

function save(blob, name) {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name }).click();
  // The browser has taken hold of it by then.
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

export function queryPage(main, signal, _, parameters) {
  const names = el("datalist", { id: "stream-names" });
  const stream = el("input", { type: "text", required: true, list: "stream-names", placeholder: "grid/meters", "data-key": "/", autocapitalize: "off", spellcheck: "false", value: parameters.get("stream") ?? "" });
  const where = el("input", { type: "text", placeholder: "temp > 20 AND vid = 'm-17'", autocapitalize: "off", spellcheck: "false", value: parameters.get("where") ?? "" });
  const columns = el("input", { type: "text", placeholder: "all", autocapitalize: "off", spellcheck: "false", value: parameters.get("columns") ?? "" });
  const limit = el("input", { type: "number", min: "1", max: String(LIMIT_MAX), required: true, value: parameters.get("limit") ?? String(LIMIT) });
  const run = el("button", { type: "submit", class: "primary" }, "Run");
  const message = el("div", {});
  const summary = el("p", { class: "total", role: "status", "aria-live": "polite" });
  const explained = el("p", { class: "explain" });
  const table = recordsTable("Result");
  const drawn = el("div", {});
  const downloads = el("div", { class: "row" }, el("span", { class: "label" }, "Download"), FORMATS.map(([format, title]) => button(title, () => download(format), { "aria-label": `Download ${title}` })));
  const result = el("section", { class: "card", "aria-label": "Result", hidden: true }, el("div", { class: "bar" }, el("h2", {}, "Result"), summary, downloads), explained, drawn, table.node);
  const past = historyList(recall);

  function asked() {
    return { stream: stream.value.trim(), where: where.value.trim(), columns: columns.value.split(",").map((name) => name.trim()).filter(Boolean).join(","), limit: limit.value };
  }

  function recall(query) {
    stream.value = query.stream;
    where.value = query.where;
    columns.value = query.columns;
    limit.value = query.limit;
    ask();
  }

  function scanPath({ stream: name, ...rest }, format) {
    return withQuery(streamPath(name, "scan"), { ...rest, format });
  }

  // Only a stream with a layout of two columns has a map of its own accord.
  async function mapOf(query) {
    const { layout } = await getJson(streamPath(query.stream), { signal });
    if ((layout?.columns ?? []).length < 2) return [];
    return [objectMap(await getJson(withQuery(streamPath(query.stream, "map"), { where: query.where }), { signal }))];
  }

  async function ask() {
    const query = asked();
    history.replaceState(null, "", withQuery("#/query", query));
    run.disabled = true;
    message.replaceChildren();
    const begun = performance.now();
    try {
      const explain = getJson(withQuery(streamPath(query.stream, "explain"), { where: query.where }), { signal });
      // Its failure is that of the scan, which is shown; it must not go unhandled while the scan is awaited.
      explain.catch(() => null);
      const records = [];
      for await (const texts of lines(await request(scanPath(query, "ndjson"), { signal }))) records.push(...texts.map(exactJson));
      const milliseconds = performance.now() - begun;
      setText(explained, explainText(await explain));
      drawn.replaceChildren(...await mapOf(query));
      table.show(records);
      table.node.hidden = records.length === 0;
      const full = records.length === Number(query.limit) ? " (the limit)" : "";
      setText(summary, records.length ? `${plural(records.length, "record")}${full} in ${Math.round(milliseconds)} ms` : "No record matches.");
      result.hidden = false;
      remember(query);
      past.refresh();
    } catch (error) {
      if (signal.aborted) return;
      result.hidden = true;
      showProblem(message, error);
    } finally {
      run.disabled = false;
    }
  }

  async function download(format) {
    const query = asked();
    try {
      const response = await request(scanPath(query, format), { signal });
      save(await response.blob(), `${query.stream.replaceAll("/", ".")}.${format}`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblem(message, error);
    }
  }

  function showNames() {
    const known = (watch.streams ?? []).map((found) => found.name);
    if (names.children.length !== known.length) names.replaceChildren(...known.map((value) => el("option", { value })));
  }

  const form = el("form", { class: "card query" },
    field("Stream", stream), field("Where", where, "A condition as in SQL; empty: every record"),
    field("Columns", columns, "Names joined by commas"), field("Limit", limit),
    el("div", { class: "row end" }, run), names);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  main.replaceChildren(el("div", { class: "bar" }, el("h1", {}, "Query")), form, message, result, past.node);
  watch.addEventListener("status", showNames, { signal });
  showNames();
  if (stream.value && parameters.has("limit")) ask();
}
