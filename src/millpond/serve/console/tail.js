// The live tail: records as they arrive, newest on top, by a followed read. The server does the filtering. When the
// connection is cut it goes on after the last record of each streamlet, so none is shown twice and none is left out.
//
// However fast records come, only the newest are on the page, and it is changed four times a second at most.

import { button, el, setText } from "./dom.js";
import { count, plural, rate } from "./format.js";
import { exactJson, getJson, lines, Problem, request, streamPath, withQuery } from "./api.js";
import { pause } from "./poll.js";
import { recordsTable } from "./records.js";
import { showProblem } from "./problem.js";

const ROWS_MAX = 200;
const SHOW_MILLISECONDS = 250;
const RETRY_MILLISECONDS = 1000;
// Screen readers are told a summary this often, not every record.
const SAY_MILLISECONDS = 5000;
// How far before the end it begins, per streamlet, so that there is something to see: more if most is filtered away.
const BACK = 50;
const BACK_FILTERED = 1000;

export function tailSection(stream, signal) {
  const where = el("input", { type: "text", placeholder: "Filter, e.g. temp > 20", "aria-label": "Filter of the tail (where)", "data-key": "/", spellcheck: "false", autocapitalize: "off" });
  const toggle = button("Pause", () => (run ? stop() : start()), { "data-key": "p" });
  const state = el("span", { class: "state" });
  const said = el("span", { class: "unseen", role: "status", "aria-live": "polite" });
  const message = el("div", {});
  const table = recordsTable(`Newest records of ${stream}`);
  const nothing = el("p", { class: "waiting" }, "Waiting for records…");
  let run = null;
  let position = null;
  let kept = [];
  let fresh = [];
  let seen = 0;
  let unsaid = 0;

  function showState(text, kind) {
    setText(state, text);
    state.className = `state ${kind}`;
  }

  function show() {
    if (fresh.length === 0) return;
    const newest = fresh.slice(-ROWS_MAX).reverse();
    fresh = [];
    kept = [...newest, ...kept].slice(0, ROWS_MAX);
    table.push(newest, kept);
    nothing.hidden = true;
    table.node.hidden = false;
  }

  function take(texts) {
    for (const text of texts) {
      const record = exactJson(text);
      position[record._streamlet] = Number(record._offset) + 1;
      fresh.push(record);
    }
    if (fresh.length > ROWS_MAX) fresh.splice(0, fresh.length - ROWS_MAX);
    seen += texts.length;
    unsaid += texts.length;
  }

  async function begin(ended) {
    const { head } = await getJson(streamPath(stream, "status"), { signal: ended });
    const back = where.value.trim() ? BACK_FILTERED : BACK;
    position = Object.fromEntries(Object.entries(head).map(([streamlet, offset]) => [streamlet, Math.max(0, offset - back)]));
  }

  async function follow(ended) {
    if (position === null) await begin(ended);
    const start = Object.entries(position).map((place) => place.join(":")).join(",");
    const path = withQuery(streamPath(stream, "records"), { start, follow: "true", format: "ndjson", where: where.value.trim() });
    const response = await request(path, { signal: ended });
    message.replaceChildren();
    showState("live", "good");
    for await (const texts of lines(response)) take(texts);
  }

  async function keepFollowing(ended) {
    while (!ended.aborted) {
      try {
        await follow(ended);
      } catch (error) {
        if (ended.aborted) return;
        if (error instanceof Problem && !error.away) {
          stop();
          showProblem(message, error);
          return;
        }
        if (!(error instanceof Problem) && !(error instanceof TypeError)) throw error;
      }
      showState("reconnecting…", "bad");
      await pause(RETRY_MILLISECONDS, ended);
    }
  }

  function start() {
    run = new AbortController();
    setText(toggle, "Pause");
    showState("connecting…", "");
    keepFollowing(AbortSignal.any([run.signal, signal]));
  }

  function stop() {
    run?.abort();
    run = null;
    show();
    setText(toggle, "Resume");
    showState("paused", "");
  }

  function restart() {
    run?.abort();
    position = null;
    kept = [];
    fresh = [];
    table.show([]);
    table.node.hidden = true;
    nothing.hidden = false;
    setText(nothing, where.value.trim() ? "Waiting for records that match…" : "Waiting for records…");
    message.replaceChildren();
    start();
  }

  let before = { seen: 0, at: performance.now() };
  const showing = setInterval(() => {
    show();
    const now = performance.now();
    if (now - before.at < 1000) return;
    const perSecond = ((seen - before.seen) * 1000) / (now - before.at);
    before = { seen, at: now };
    if (state.classList.contains("good")) showState(perSecond > 0 ? `live · ${rate(perSecond)}` : "live", "good");
  }, SHOW_MILLISECONDS);
  const saying = setInterval(() => {
    if (unsaid > 0) setText(said, `${plural(unsaid, "new record")}, ${count(seen)} in all`);
    unsaid = 0;
  }, SAY_MILLISECONDS);
  signal.addEventListener("abort", () => {
    clearInterval(showing);
    clearInterval(saying);
  });

  const form = el("form", { class: "bar", role: "search" }, el("h2", {}, "Live tail"), state, where, el("button", { type: "submit" }, "Filter"), toggle);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    restart();
  });
  restart();
  return el("section", { class: "card tail", "aria-label": "Live tail" }, form, message, nothing, table.node, said);
}
