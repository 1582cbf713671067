// Times that age: shown relative to now, with the exact time as title, and kept right while they stand on the page.

import { el, setText } from "./dom.js";
import { ago, exactTime } from "./format.js";

const REFRESH_MILLISECONDS = 5000;

export function when(milliseconds) {
  const node = el("time", {});
  setWhen(node, milliseconds);
  return node;
}

export function setWhen(node, milliseconds) {
  node.dateTime = new Date(milliseconds).toISOString();
  node.title = exactTime(milliseconds);
  setText(node, ago(milliseconds));
}

setInterval(() => {
  for (const node of document.querySelectorAll("time[datetime]")) setText(node, ago(Date.parse(node.dateTime)));
}, REFRESH_MILLISECONDS);
