// A map of a stream's objects: what a query reads, what it is spared, and where it looks. Colours come from the style
// sheet; what it shows is said in words as well.

import { el, svg } from "./dom.js";
import { count } from "./format.js";

const WIDTH = 480;
const HEIGHT_MAX = 480;
const MARGIN = 0.04;

function extentOf(boxes) {
  const low = [0, 1].map((at) => boxes.reduce((least, box) => Math.min(least, box[at]), Infinity));
  const high = [2, 3].map((at) => boxes.reduce((most, box) => Math.max(most, box[at]), -Infinity));
  const pad = [0, 1].map((at) => Math.max((high[at] - low[at]) * MARGIN, 1e-9));
  return { west: low[0] - pad[0], south: low[1] - pad[1], east: high[0] + pad[0], north: high[1] + pad[1] };
}

// Degrees are drawn as they lie on the ground in the middle of the map; other columns fill a square.
function heightOf({ west, south, east, north }, map) {
  const degrees = /^lon/i.test(map.x) && /^lat/i.test(map.y);
  if (!degrees) return WIDTH;
  const shrink = Math.cos(((south + north) / 2) * (Math.PI / 180));
  return Math.min(HEIGHT_MAX, (WIDTH * (north - south)) / Math.max((east - west) * shrink, 1e-9));
}

export function objectMap(map) {
  const read = map.read.filter(Boolean).length;
  const said = `${count(read)} of ${count(map.objects_total)} objects are read; ${map.x} runs across, ${map.y} up.`;
  if (!map.boxes.length) return el("p", { class: "hint" }, "Of no object is it known where it lies.");
  const extent = extentOf(map.boxes);
  const height = heightOf(extent, map);
  const across = (x) => ((x - extent.west) / (extent.east - extent.west)) * WIDTH;
  const up = (y) => (1 - (y - extent.south) / (extent.north - extent.south)) * height;
  const rect = ([west, south, east, north], className) => svg("rect", {
    class: className, x: across(west).toFixed(1), y: up(north).toFixed(1),
    width: Math.max(across(east) - across(west), 1).toFixed(1), height: Math.max(up(south) - up(north), 1).toFixed(1),
  });
  const objects = map.boxes.map((box, at) => [box, map.read[at]]);
  const asked = [map.asked_x[0] ?? extent.west, map.asked_y[0] ?? extent.south, map.asked_x[1] ?? extent.east, map.asked_y[1] ?? extent.north];
  const bounded = [...map.asked_x, ...map.asked_y].some((end) => end !== null);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height.toFixed(0)}`, role: "img", "aria-label": said },
    objects.filter(([, isRead]) => !isRead).map(([box]) => rect(box, "spared")),
    objects.filter(([, isRead]) => isRead).map(([box]) => rect(box, "read")),
    bounded && rect(asked, "asked"));
  const key = el("p", { class: "key" }, el("span", { class: "read" }, "read"), el("span", { class: "spared" }, "ruled out"), bounded && el("span", { class: "asked" }, "asked for"));
  return el("figure", { class: "map" }, picture, el("figcaption", {}, said, key));
}
