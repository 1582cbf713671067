// The text that Prometheus reads, parsed, and what the plots need of it: sums of counters, quantiles of histograms.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LE = /(?:^|,)le="([^"]*)"/;

// name -> the sum over all labels; for histograms also buckets: name -> Map(upper bound -> count).
export function parseMetrics(text) {
  const sums = new Map();
  const buckets = new Map();
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name, labels, shown] = found;
    const value = Number(shown);
    const le = labels && name.endsWith("_bucket") ? LE.exec(labels) : null;
    if (le) {
      const bound = le[1] === "+Inf" ? Infinity : Number(le[1]);
      const histogram = name.slice(0, -"_bucket".length);
      if (!buckets.has(histogram)) buckets.set(histogram, new Map());
      const counts = buckets.get(histogram);
      counts.set(bound, (counts.get(bound) ?? 0) + value);
    } else {
      sums.set(name, (sums.get(name) ?? 0) + value);
    }
  }
  return { sums, buckets };
}

// The value below which a share of the observations between two parsed texts lie; null if there were none. Within a
// bucket, values are taken to be spread evenly.
export function quantile(share, earlier, later, name) {
  const counts = later.buckets.get(name);
  if (!counts) return null;
  const before = earlier.buckets.get(name) ?? new Map();
  const bounds = [...counts.keys()].sort((a, b) => a - b);
  const grown = bounds.map((bound) => counts.get(bound) - (before.get(bound) ?? 0));
  const all = grown.at(-1);
  if (!(all > 0)) return null;
  const at = grown.findIndex((number) => number >= share * all);
  const low = at > 0 ? bounds[at - 1] : 0;
  if (bounds[at] === Infinity) return low;
  const below = at > 0 ? grown[at - 1] : 0;
  return low + ((bounds[at] - low) * (share * all - below)) / (grown[at] - below);
}

// How fast a counter grew between two samples; null if it is not there. A restarted server counts from nought again.
export function growth(earlier, later, name) {
  if (!later.metrics.sums.has(name) || !earlier.metrics.sums.has(name)) return null;
  const grown = later.metrics.sums.get(name) - earlier.metrics.sums.get(name);
  return grown < 0 ? null : grown / (later.seconds - earlier.seconds);
}
