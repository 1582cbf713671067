// The pond as it stands, asked for every two seconds and told to whoever listens: "status" with the streams, "sample"
// with what the plots draw, "link" when the server goes away or comes back.
//
// A caller who may read everything gets it in one request. Anyone else gets the list of streams, and the status of those
// that are shown and may be read.

import { getJson, Problem, request, streamPath } from "./api.js";
import { parseMetrics } from "./metrics.js";
import { poll } from "./poll.js";
import { may } from "./session.js";
import { total } from "./standing.js";

const EVERY_MILLISECONDS = 2000;
// Five minutes of samples.
const SAMPLES_MAX = 150;
// At most so many single requests for the status of streams at once, out of the browser's six per server.
const AT_ONCE = 3;

export const watch = Object.assign(new EventTarget(), { streams: null, samples: [], away: null, shown: () => [] });

const heads = new Map();

function tell(type) {
  watch.dispatchEvent(new Event(type));
}

// Records per second since the last look; null at the first.
export function rateOf(status, seconds = performance.now() / 1000) {
  const head = total(status.head);
  const key = `${status.id}/${status.generation}`;
  const before = heads.get(key);
  heads.set(key, { head, seconds, rate: before ? (head - before.head) / (seconds - before.seconds) : null });
  return heads.get(key).rate;
}

async function streams() {
  if (may("read")) {
    const status = await getJson("/v1/status");
    return status.streams.map((stream) => ({ ...stream, known: true }));
  }
  const listed = await getJson("/v1/streams");
  const found = new Map(listed.map((info) => [info.name, { ...info, known: false }]));
  const wanted = watch.shown().filter((name) => found.has(name) && may("read", name));
  const ask = async () => {
    for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
      found.set(name, { ...found.get(name), ...(await getJson(streamPath(name, "status"))), known: true });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, ask));
  return [...found.values()];
}

async function look() {
  const found = await streams();
  const seconds = performance.now() / 1000;
  watch.streams = found.map((stream) => ({ ...stream, rate: stream.known ? rateOf(stream, seconds) : null }));
  online();
  tell("status");
  if (may("read")) {
    await sample(seconds);
    tell("sample");
  }
}

// A server that gives no metrics is not asked again.
let measured = true;

async function metrics() {
  if (!measured) return "";
  try {
    return await (await request("/metrics")).text();
  } catch (error) {
    if (error.status !== 404) throw error;
    measured = false;
    return "";
  }
}

async function sample(seconds) {
  watch.samples.push({
    seconds,
    metrics: parseMetrics(await metrics()),
    lag: watch.streams.reduce((sum, stream) => sum + (stream.rows_live ?? 0), 0),
    live: watch.streams.reduce((sum, stream) => sum + (stream.bytes_live ?? 0), 0),
  });
  if (watch.samples.length > SAMPLES_MAX) watch.samples.shift();
}

export function online() {
  if (watch.away === null) return;
  watch.away = null;
  tell("link");
}

// Whatever asked and got no answer says so here; other problems are for whoever asked.
export function failed(problem) {
  if (!(problem instanceof Problem) || !problem.away || watch.away !== null) return;
  watch.away = problem;
  tell("link");
}

let looking = null;

// Begins, or begins again at once: after a change of ours, or for another caller.
export function lookNow() {
  looking?.abort();
  looking = new AbortController();
  poll(look, EVERY_MILLISECONDS, looking.signal, failed);
}
