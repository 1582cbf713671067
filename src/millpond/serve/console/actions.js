// Settle, truncate and drop: first what would happen, then whether to do it.

import { el, field } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { events, getJson, Problem, streamPath, withQuery } from "./api.js";
import { openDialog } from "./dialog.js";
import { problemCard, showProblem } from "./problem.js";

// More streamlets than this are counted, not listed.
const RANGES_MAX = 8;

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
}

async function preview(title, method, path) {
  try {
    return await getJson(withQuery(path, { preview: "true" }), { method });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    openDialog(title, { body: problemCard(error) });
    return null;
  }
}

export async function settleStream(stream, done) {
  const path = streamPath(stream, "settle");
  const answer = await preview(`Settle ${stream}`, "POST", path);
  if (!answer) return;
  const { plan } = answer;
  const ranges = Object.entries(plan.ranges).filter(([, range]) => range.stop > range.start);
  const message = el("div", {});
  openDialog(`Settle ${stream}`, {
    body: [
      el("p", {}, plan.rows > 0
        ? "This moves what is live into the archive. Readers notice nothing; it cannot be moved back."
        : "Nothing is live: there is nothing to move."),
      facts([
        ["Records", count(plan.rows)],
        ["Live size", bytes(plan.bytes_live)],
        ...ranges.slice(0, RANGES_MAX).map(([streamlet, range]) => [
          ranges.length > 1 ? `Streamlet ${streamlet}` : "Offsets",
          `${count(range.start)} → ${count(range.stop)}`,
        ]),
        ...(ranges.length > RANGES_MAX ? [["", `and ${count(ranges.length - RANGES_MAX)} more`]] : []),
      ]),
      message,
    ],
    action: "Settle now",
    ready: (submit) => {
      submit.disabled = plan.rows === 0;
    },
    async onsubmit(dialog) {
      let report;
      try {
        report = (await getJson(path, { method: "POST" })).settled;
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done(report
        ? `${plural(report.rows, "record")} settled into ${plural(report.objects, "object")}, ${bytes(report.bytes_written)}.`
        : "Nothing was left to settle.");
    },
  });
}

function discarded(plan) {
  return facts([
    ["Live", `${plural(plan.rows_live, "record")}, ${bytes(plan.bytes_live)}`],
    ["Settled", `${plural(plan.rows_settled, "record")}, ${bytes(plan.bytes_settled)}`],
    ["Objects", count(plan.objects)],
  ]);
}

export async function truncateStream(stream, done) {
  const path = streamPath(stream, "truncate");
  const plan = await preview(`Truncate ${stream}`, "POST", path);
  if (!plan) return;
  const name = el("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const message = el("div", {});
  openDialog(`Truncate ${stream}`, {
    danger: true,
    body: [
      el("p", {}, "All records are gone after this, live and settled; it cannot be undone. The stream stays: "
        + `generation ${plan.generation} begins, empty, and writers and followers go over to it by themselves.`),
      discarded(plan),
      field(`Type ${stream} to truncate it`, name),
      message,
    ],
    action: "Discard all records",
    ready: (submit) => {
      submit.disabled = true;
      name.addEventListener("input", () => {
        submit.disabled = name.value !== stream;
      });
    },
    async onsubmit(dialog) {
      let gone;
      try {
        gone = await getJson(path, { method: "POST" });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done(`${plural(gone.rows_live + gone.rows_settled, "record")} discarded; this is generation ${gone.generation}.`);
    },
  });
}

export async function dropStream(stream, done) {
  const plan = await preview(`Drop ${stream}`, "DELETE", streamPath(stream));
  if (!plan) return;
  const name = el("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const message = el("div", {});
  openDialog(`Drop ${stream}`, {
    danger: true,
    body: [
      el("p", {}, "The stream and all of its records are gone after this, live and settled. It cannot be undone."),
      discarded(plan),
      field(`Type ${stream} to drop it`, name),
      message,
    ],
    action: "Drop for good",
    ready: (submit) => {
      submit.disabled = true;
      name.addEventListener("input", () => {
        submit.disabled = name.value !== stream;
      });
    },
    async onsubmit(dialog) {
      try {
        await getJson(streamPath(stream), { method: "DELETE" });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      events.dispatchEvent(new Event("changed"));
      done();
    },
  });
}
