// Line plots that move: time on the x axis, the newest on the right, the y axis from nought to a round number. A line
// breaks where there is no value. Colours come from the style sheet.

import { el, setText, svg } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 22;
// [seconds shown, seconds between marks]: the shortest that holds all samples.
const SPANS = [[60, 15], [120, 30], [300, 60]];
// Their halves are round as well: the line in the middle has a label, too.
const STEPS = [1, 2, 4, 6, 8, 10];

// The least round number that is not below.
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return STEPS.map((step) => step * power).find((round) => round >= value * 0.999999);
}

function xOf(age, span) {
  return LEFT + (1 - age / span) * (WIDTH - LEFT - RIGHT);
}

function yOf(value, top) {
  return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
}

function ageText(seconds) {
  if (seconds === 0) return "now";
  return seconds < 120 ? `−${seconds} s` : `−${seconds / 60} min`;
}

// points: [seconds, value or null]. Runs of values become lines of their own.
function pathOf(points, now, span, top) {
  let pen = "M";
  let path = "";
  for (const [seconds, value] of points) {
    if (value === null || now - seconds > span) {
      pen = "M";
      continue;
    }
    path += `${pen}${xOf(now - seconds, span).toFixed(1)} ${yOf(value, top).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

// series: [{id, title}]. `update({id: points}, now)` draws.
export function plot(title, series, shown) {
  const now = el("p", { class: "now" });
  const grid = [1, 0.5, 0].map((share) => ({
    share,
    text: svg("text", { class: "axis", x: LEFT - 6, y: yOf(share, 1) + 4, "text-anchor": "end" }),
  }));
  const marks = svg("g", {});
  const lines = new Map(series.map(({ id }, at) => [id, svg("path", { class: `line line-${at}` })]));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
    grid.map(({ share }) => svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: yOf(share, 1), y2: yOf(share, 1) })),
    grid.map(({ text }) => text),
    marks,
    [...lines.values()]);
  let shownSpan = 0;

  function markTimes([span, step]) {
    if (span === shownSpan) return;
    shownSpan = span;
    const ages = Array.from({ length: span / step }, (_, at) => at * step);
    marks.replaceChildren(...ages.map((age) =>
      svg("text", { class: "axis", x: xOf(age, span), y: HEIGHT - 5, "text-anchor": age ? "middle" : "end" }, ageText(age))));
  }

  const none = el("p", { class: "waiting" }, "no data yet");
  const legend = series.map((one, at) => {
    const value = el("strong", {});
    return { id: one.id, value, node: el("span", {}, series.length > 1 && el("i", { class: `dot line-${at}` }), one.title, " ", value) };
  });
  now.append(...legend.map((entry) => entry.node));
  const node = el("section", { class: "card plot", "aria-label": title }, el("h2", {}, title), now, drawing, none);

  function update(points, seconds) {
    const values = Object.values(points).flat().map(([, value]) => value).filter((value) => value !== null);
    none.hidden = values.length > 0;
    drawing.toggleAttribute("hidden", values.length === 0);
    now.hidden = values.length === 0;
    if (values.length === 0) return;
    const oldest = Math.min(...Object.values(points).map((line) => line[0][0]));
    const chosen = SPANS.find(([span]) => seconds - oldest <= span) ?? SPANS.at(-1);
    markTimes(chosen);
    const top = roundUp(Math.max(...values));
    for (const { share, text } of grid) setText(text, shown(share * top));
    for (const [id, line] of lines) line.setAttribute("d", pathOf(points[id], seconds, chosen[0], top));
    for (const { id, value } of legend) {
      const last = points[id].at(-1)?.[1] ?? null;
      setText(value, last === null ? "–" : shown(last));
    }
  }

  return { node, update };
}
