// Throughput and latency of the last five minutes, from the samples that `watch` takes while the console is open.

import { bytes, duration, rate, short } from "./format.js";
import { el } from "./dom.js";
import { growth, quantile } from "./metrics.js";
import { may } from "./session.js";
import { plot } from "./plots.js";
import { watch } from "./watch.js";

// Quantiles are those of the last five samples, ten seconds: a single one holds too few observations.
const WINDOW = 5;

const counter = (name) => (samples, at) => (at < 1 ? null : growth(samples[at - 1], samples[at], name));
const share = (part, name) => (samples, at) => {
  const earlier = samples[Math.max(0, at - WINDOW)];
  return at < 1 ? null : quantile(part, earlier.metrics, samples[at].metrics, name);
};
const quantiles = (name) => [
  { id: "p50", title: "p50", value: share(0.5, name) },
  { id: "p99", title: "p99", value: share(0.99, name) },
];

const PLOTS = [
  { title: "Appended records", shown: rate, series: [{ id: "records", title: "", value: counter("millpond_appended_records_total") }] },
  { title: "Appended bytes", shown: (value) => `${bytes(value)}/s`, series: [{ id: "bytes", title: "", value: counter("millpond_appended_bytes_total") }] },
  { title: "End-to-end latency (from append to reader)", shown: duration, series: quantiles("millpond_end_to_end_latency_seconds") },
  { title: "Sync time", shown: duration, series: quantiles("millpond_journal_sync_seconds") },
  { title: "Boundary lag (records not settled)", shown: short, series: [{ id: "lag", title: "", value: (samples, at) => samples[at].lag }] },
  { title: "Live size", shown: bytes, series: [{ id: "live", title: "", value: (samples, at) => samples[at].live }] },
];

export function activityPage(main, signal) {
  const heading = el("div", { class: "bar" }, el("h1", {}, "Activity"), el("p", { class: "total" }, "up to five minutes, from when the console was opened"));
  if (!may("read")) {
    main.replaceChildren(heading, el("p", { class: "waiting" }, "This needs the right to read the pond as a whole."));
    return;
  }
  const drawn = PLOTS.map(({ title, shown, series }) => ({ series, ...plot(title, series, shown) }));

  function show() {
    const { samples } = watch;
    const now = samples.at(-1)?.seconds ?? 0;
    for (const { series, update } of drawn) {
      update(Object.fromEntries(series.map(({ id, value }) => [id, samples.map((sample, at) => [sample.seconds, value(samples, at)])])), now);
    }
  }

  main.replaceChildren(heading, el("div", { class: "plots" }, drawn.map(({ node }) => node)));
  watch.addEventListener("sample", show, { signal });
  show();
}
