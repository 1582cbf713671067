// A box to append a record with, to try a stream out. Its first text is a record that fits the columns.

import { el, field } from "./dom.js";
import { request, streamPath } from "./api.js";
import { guard } from "./session.js";
import { showProblem } from "./problem.js";

const EXAMPLES = [
  [/^(tinyint|smallint|int|bigint|byte|short|long|u?int\d+)/, 1],
  [/^(float|double|real)/, 21.5],
  [/^decimal/, "1.50"],
  [/^boolean/, true],
  [/^timestamp/, () => new Date().toISOString()],
  [/^date/, () => new Date().toISOString().slice(0, 10)],
  [/^array/, () => []],
  [/^(map|struct)/, () => ({})],
];

function exampleOf({ name, type }) {
  const found = EXAMPLES.find(([pattern]) => pattern.test(type));
  const value = found ? found[1] : `${name}-1`;
  return typeof value === "function" ? value() : value;
}

export function appendSection(info) {
  const record = info.raw
    ? { hello: "world" }
    : Object.fromEntries(info.columns.map((column) => [column.name, exampleOf(column)]));
  const text = el("textarea", { rows: String(Math.min(8, Object.keys(record).length + 2)), spellcheck: "false", value: JSON.stringify(record, null, 2) });
  const answer = el("div", { role: "status", "aria-live": "polite" });
  const send = guard(el("button", { type: "submit" }, "Append"), "write", info.name);
  const form = el("form", {}, field("Record (JSON)", text), el("div", { class: "row" }, send), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      const headers = { "content-type": "application/json" };
      // As it is typed: the server says what is wrong with it, and numbers keep all of their digits.
      const ack = await (await request(streamPath(info.name, "records"), { method: "POST", headers, body: text.value })).json();
      const places = Object.entries(ack.ranges).map(([streamlet, range]) => `streamlet ${streamlet}, offset ${range.start}`);
      answer.replaceChildren(el("p", { class: "done" }, `Acknowledged at ${ack.durability}: ${places.join("; ")}`));
    } catch (error) {
      showProblem(answer, error);
    } finally {
      send.disabled = false;
    }
  });
  return el("section", { class: "card", "aria-label": "Append a record" }, el("h2", {}, "Append a record"), form);
}
