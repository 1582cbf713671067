// The REST API as functions. All requests of the page go through here: the token is added, errors become `Problem`s.
//
// The token is kept in sessionStorage, which ends with the tab, and is sent as a header only, never in an address.

const TOKEN = "millpond.token";
// Words that end a route; a name with one of them is written with %2F, see docs/rest.md.
const WORDS = new Set([
  "records", "scan", "get", "count", "explain", "map", "segments", "status", "settle", "truncate", "vacuum", "pipelines",
  "groups", "replay", "queries", "reindex", "analyse", "relayout",
]);

// What the server answered with: a code, the cause and the fix. Status 0: it did not answer.
export class Problem extends Error {
  constructor({ status = 0, code = "error", title = "", detail = "", fix = "" }) {
    super(detail || title || code);
    Object.assign(this, { status, code, title, detail, fix });
  }

  get away() {
    return this.status === 0 || this.status === 502 || this.status === 503;
  }
}

// Tells "unauthenticated" when a token is missing or no longer good.
export const events = new EventTarget();

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (secret) => sessionStorage.setItem(TOKEN, secret),
  forget: () => sessionStorage.removeItem(TOKEN),
};

export function streamPath(name, ...rest) {
  const parts = name.split("/");
  const joint = parts.some((part) => WORDS.has(part)) ? "%2F" : "/";
  return ["/v1/streams", parts.map(encodeURIComponent).join(joint), ...rest].join("/");
}

// A group's name may be any text.
export function groupPath(stream, group, ...rest) {
  return [streamPath(stream, "groups"), encodeURIComponent(group), ...rest].join("/");
}

// The path with its parameters; those that are empty are left out.
export function withQuery(path, parameters) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

// The response, if it is a good one.
export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const secret = token.get();
  let response;
  try {
    response = await fetch(path, {
      method,
      body,
      signal,
      cache: "no-store",
      credentials: "omit",
      headers: { ...headers, ...(secret ? { authorization: `Bearer ${secret}` } : {}) },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ code: "unreachable", detail: "The server does not answer.", fix: "Look whether it runs." });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.status === 401) events.dispatchEvent(new CustomEvent("unauthenticated", { detail: problem }));
  throw problem;
}

async function problemOf(response) {
  const text = await response.text();
  try {
    return new Problem({ ...JSON.parse(text), status: response.status });
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return new Problem({ status: response.status, code: `http-${response.status}`, detail: text.slice(0, 500) });
  }
}

// Whole numbers that a double cannot hold become BigInt, so that they are shown as they are.
export function exactJson(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

export async function getJson(path, options = {}) {
  const response = await request(path, { ...options, headers: { accept: "application/json", ...options.headers } });
  const text = await response.text();
  return text ? exactJson(text) : null;
}

export function sendJson(method, path, value, options = {}) {
  const headers = { "content-type": "application/json" };
  return getJson(path, { ...options, method, headers, body: JSON.stringify(value) });
}

// The lines of a response that may go on for ever, in the chunks they arrive in.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const found = (rest + value).split("\n");
    rest = found.pop();
    const full = found.filter((line) => line.trim());
    if (full.length) yield full;
  }
  if (rest.trim()) yield [rest];
}
