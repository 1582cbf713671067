// Numbers, sizes and times as people read them.

const COUNT = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function count(number) {
  return COUNT.format(number);
}

export function short(number) {
  return Math.abs(number) < 10000 ? COUNT.format(Math.round(number * 10) / 10) : SHORT.format(number).replace("K", "k");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function bytes(number) {
  let unit = 0;
  while (number >= 1000 && unit < UNITS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${UNITS[unit]}`;
}

export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond > 0 && perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${short(Math.round(perSecond))}/s`;
}

export function duration(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(milliseconds, now = Date.now()) {
  const seconds = Math.round((now - milliseconds) / 1000);
  if (Math.abs(seconds) < 5) return "just now";
  const distance = Math.abs(seconds) < 120 ? `${Math.abs(seconds)} s` : duration(Math.abs(seconds));
  return seconds < 0 ? `in ${distance}` : `${distance} ago`;
}

export function exactTime(milliseconds) {
  return new Date(milliseconds).toISOString().replace("T", " ").replace("Z", " UTC");
}

// What stands in a cell. A value that is no text is shown as JSON has it.
export function shown(value, indent = 0) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return value;
  if (typeof value === "object") return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? `${part}` : part), indent);
  return String(value);
}
