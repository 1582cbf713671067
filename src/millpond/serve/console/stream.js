// The page of one stream: where it stands, its tail, its columns and its segments, and what can be done with it.

import { button, el, setAttribute, setText } from "./dom.js";
import { bytes, count, duration, plural, rate, short } from "./format.js";
import { addColumns, keepFor } from "./create.js";
import { appendSection } from "./append.js";
import { dropStream, settleStream, truncateStream } from "./actions.js";
import { failed, online, rateOf } from "./watch.js";
import { getJson, streamPath } from "./api.js";
import { groupsSection } from "./groups.js";
import { guard } from "./session.js";
import { offsetsCell, settleText } from "./standing.js";
import { queryHref } from "./places.js";
import { poll } from "./poll.js";
import { problemCard } from "./problem.js";
import { segmentsSection } from "./segments.js";
import { tailSection } from "./tail.js";

const EVERY_MILLISECONDS = 2000;

function tile(title, ...parts) {
  return el("div", { class: "tile" }, el("dt", {}, title), el("dd", {}, parts));
}

function standing() {
  const parts = {
    rate: el("strong", {}, "–"),
    live: el("strong", {}, "–"), liveBytes: el("small", {}),
    settled: el("strong", {}, "–"), settledBytes: el("small", {}),
    offsets: offsetsCell(),
    settling: el("strong", {}, "–"), failure: el("small", {}),
    warnings: el("ul", { class: "warnings" }),
  };
  const node = el("div", {}, el("dl", { class: "tiles" },
    tile("Rate", parts.rate),
    tile("Live", parts.live, parts.liveBytes),
    tile("Settled", parts.settled, parts.settledBytes),
    tile("Boundary → head", parts.offsets.node),
    tile("Last settled", parts.settling, parts.failure),
  ), parts.warnings);
  const update = (status) => {
    setText(parts.rate, rate(rateOf(status)));
    setText(parts.live, short(status.rows_live));
    setAttribute(parts.live, "title", plural(status.rows_live, "record"));
    setText(parts.liveBytes, bytes(status.bytes_live));
    setText(parts.settled, short(status.rows_settled));
    setAttribute(parts.settled, "title", plural(status.rows_settled, "record"));
    setText(parts.settledBytes, `${bytes(status.bytes_settled)} in ${plural(status.objects, "object")}`);
    parts.offsets.update(status.boundary, status.head);
    const [text, failing] = settleText(status);
    setText(parts.settling, text);
    parts.settling.classList.toggle("bad", failing);
    setText(parts.failure, failing ? status.settling.failure : `${plural(status.settling.settles, "time")} since the start`);
    const warnings = status.warnings.join("\n");
    if (parts.warnings.dataset.shown !== warnings) {
      parts.warnings.dataset.shown = warnings;
      parts.warnings.replaceChildren(...status.warnings.map((warning) => el("li", {}, warning)));
    }
  };
  return { node, update };
}

function columnsSection(info, add, keep) {
  const rows = info.columns.map((column) => {
    const marks = [
      info.keys[0] === column.name && "primary key",
      info.keys.indexOf(column.name) > 0 && "key",
      info.event_time === column.name && "event time",
      !column.nullable && "not null",
    ].filter(Boolean);
    return el("tr", {}, el("th", { scope: "row" }, column.name), el("td", {}, el("code", {}, column.type)),
      el("td", {}, marks.map((mark) => el("span", { class: "mark" }, mark))));
  });
  const facts = [
    ["Durability", info.durability],
    ["Streamlets", count(info.streamlets)],
    ["Settles", info.settle_every_seconds === null ? "never: records stay live" : `every ${duration(info.settle_every_seconds)} or ${bytes(info.settle_bytes)}`],
    ["Keeps records", info.ttl_seconds === null ? "for good" : `for ${duration(info.ttl_seconds)}`],
    ...(info.keep === null ? [] : [["Stores", el("span", {}, "what meets ", el("code", {}, info.keep))]]),
    ...(info.sent === null ? [] : [["Is sent", el("code", {}, info.sent)]]),
    ["Partitions", `of ${duration(info.partition_seconds)}`],
    ["Schema", `version ${info.schema_version}, generation ${info.generation}`],
    ["Archive", el("code", { class: "path" }, info.archive)],
  ];
  return el("section", { class: "card", "aria-label": "Description" },
    el("div", { class: "bar" }, el("h2", {}, info.raw ? "Raw events" : "Columns"), el("span", { class: "grow" }),
      guard(button("Keep for…", keep), "admin", info.name),
      guard(button("Add columns…", add), "admin", info.name)),
    el("table", { class: "plain" }, el("tbody", {}, rows)),
    el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat()));
}

export async function streamPage(main, signal, name) {
  main.replaceChildren(el("p", { class: "waiting" }, "Looking…"));
  let info;
  let shown = false;
  const stands = standing();
  const note = el("p", { class: "done", role: "status", "aria-live": "polite" });
  const description = el("div", {});

  async function describe() {
    info = await getJson(streamPath(name), { signal });
    description.replaceChildren(columnsSection(info, () => addColumns(name, describe), () => keepFor(name, info.ttl_seconds, describe)));
  }

  function show() {
    shown = true;
    const segments = segmentsSection(name, signal);
    const settled = (text) => {
      setText(note, text);
      segments.refresh();
    };
    const settle = guard(button("Settle…", () => settleStream(name, settled)), "admin", name);
    if (info.settle_every_seconds === null && !settle.disabled) {
      settle.disabled = true;
      settle.title = "It was created without an archive";
    }
    main.replaceChildren(
      el("div", { class: "bar title" },
        el("h1", {}, el("a", { href: "#/streams", class: "up", "aria-label": "All streams" }, "←"), " ", name),
        el("span", { class: "grow" }),
        el("a", { class: "button", href: queryHref(name) }, "Query"),
        settle,
        guard(button("Truncate…", () => truncateStream(name, settled), { class: "danger" }), "admin", name),
        guard(button("Drop…", () => dropStream(name, () => { location.hash = "#/streams"; }), { class: "danger" }), "admin", name),
      ),
      note,
      stands.node,
      el("div", { class: "columns" },
        el("div", {}, tailSection(name, signal), groupsSection(name, signal), segments.node),
        el("div", {}, appendSection(info), description)),
    );
  }

  await poll(async () => {
    try {
      if (!shown) await describe();
      const status = await getJson(streamPath(name, "status"), { signal });
      online();
      if (!shown) show();
      stands.update(status);
    } catch (error) {
      if (!signal.aborted && !error.away) main.replaceChildren(problemCard(error), el("p", {}, el("a", { href: "#/streams" }, "All streams")));
      shown = false;
      throw error;
    }
  }, EVERY_MILLISECONDS, signal, failed);
}
