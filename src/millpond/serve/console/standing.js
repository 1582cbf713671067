// Where a stream stands, in words: the offsets of its streamlets, and how settling goes.

import { el, setText } from "./dom.js";
import { ago, count, duration } from "./format.js";

export function total(offsets) {
  return Object.values(offsets).reduce((sum, offset) => sum + offset, 0);
}

// One line for one streamlet; for more, the sums, and a line for each that can be opened.
export function offsetsCell() {
  const line = el("span", { class: "offsets" });
  const summary = el("summary", {});
  const list = el("ul", { class: "offsets" });
  const details = el("details", {}, summary, list);
  const node = el("div", {}, line, details);
  let last = [{}, {}];
  // A stream may have a thousand streamlets: their lines are made only for who opens them.
  const showEach = () => {
    if (!details.open) return;
    const [boundary, head] = last;
    const texts = Object.keys(head).map((at) => `${at}: ${count(boundary[at] ?? 0)} → ${count(head[at])}`);
    while (list.children.length > texts.length) list.lastElementChild.remove();
    texts.forEach((text, at) => {
      if (!list.children[at]) list.append(el("li", {}));
      setText(list.children[at], text);
    });
  };
  details.addEventListener("toggle", showEach);
  const update = (boundary, head) => {
    last = [boundary, head];
    const streamlets = Object.keys(head);
    details.hidden = streamlets.length < 2;
    setText(line, `${count(total(boundary))} → ${count(total(head))}`);
    setText(summary, `${streamlets.length} streamlets`);
    showEach();
  };
  return { node, update };
}

// [text, whether it is bad news]
export function settleText({ settling, rows_settled: settled }) {
  if (settling.failures > 0 && settling.failure) {
    const retry = settling.retry_seconds > 0 ? `, again in ${duration(settling.retry_seconds)}` : "";
    return [`failing${retry}`, true];
  }
  if (settling.last_micros !== null) return [ago(settling.last_micros / 1000), false];
  return [settled > 0 ? "not since the start" : "not yet", false];
}
