// Making a stream, giving one more columns, and saying how long its records are kept.

import { el, field } from "./dom.js";
import { events, sendJson, streamPath } from "./api.js";
import { openDialog } from "./dialog.js";
import { showProblem } from "./problem.js";
import { streamHref } from "./places.js";

const DURABILITIES = [
  ["disk", "disk: synced before it is acknowledged"],
  ["os", "os: handed to the operating system"],
  ["memory", "memory: quickest, lost with the process"],
];

function names(text) {
  return text.split(",").map((name) => name.trim()).filter(Boolean);
}

export function createStream() {
  const name = el("input", { type: "text", required: true, placeholder: "grid/meters", autocapitalize: "off", spellcheck: "false" });
  const schema = el("textarea", { rows: "3", placeholder: "vid string, temp double, at timestamp", spellcheck: "false" });
  const keys = el("input", { type: "text", placeholder: "vid", autocapitalize: "off", spellcheck: "false" });
  const streamlets = el("input", { type: "number", min: "1", max: "1024", value: "1", required: true });
  const durability = el("select", {}, DURABILITIES.map(([value, text]) => el("option", { value }, text)));
  const message = el("div", {});
  openDialog("New stream", {
    body: [
      field("Name", name, "Parts joined by “/”"),
      field("Columns", schema, "Name and type, joined by commas. Empty: raw events, taken as they come"),
      field("Keys", keys, "Columns that records are looked up by; the first also says which streamlet a record goes to"),
      el("div", { class: "pair" }, field("Streamlets", streamlets), field("Durability", durability)),
      message,
    ],
    action: "Create",
    async onsubmit(dialog) {
      const wanted = name.value.trim();
      try {
        await sendJson("PUT", streamPath(wanted), {
          schema: schema.value.trim() || null,
          keys: names(keys.value),
          streamlets: Number(streamlets.value),
          durability: durability.value,
        });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      events.dispatchEvent(new Event("changed"));
      location.hash = streamHref(wanted);
    },
  });
}

export function addColumns(stream, done) {
  const columns = el("input", { type: "text", required: true, placeholder: "humidity double", spellcheck: "false" });
  const message = el("div", {});
  openDialog(`Add columns to ${stream}`, {
    body: [
      el("p", {}, "Columns are added at the end. Records that are there already have no value in them."),
      field("Columns", columns, "Name and type, joined by commas"),
      message,
    ],
    action: "Add",
    async onsubmit(dialog) {
      try {
        await sendJson("PATCH", streamPath(stream), { add: columns.value.trim() });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done();
    },
  });
}

export function keepFor(stream, seconds, done) {
  const ttl = el("input", { type: "text", placeholder: "30d", autocapitalize: "off", spellcheck: "false", value: seconds === null ? "" : `${seconds}s` });
  const message = el("div", {});
  openDialog(`How long ${stream} keeps its records`, {
    body: [
      el("p", {}, "Counted from when a record came in. Older ones are not shown from that moment on, and dropped soon after."),
      field("Keep for", ttl, "A number and a unit: s, m, h, d, w. Empty: for good"),
      message,
    ],
    action: "Keep",
    async onsubmit(dialog) {
      try {
        await sendJson("PATCH", streamPath(stream), { ttl: ttl.value.trim() || null });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done();
    },
  });
}
