// Asking again and again: one request at a time, less often when answers are slow, never while nobody looks.

import { Problem } from "./api.js";

// An answer that takes long is asked for less often: at most a fifth of the time goes into asking.
const IDLE_SHARE = 4;
const RETRY_MILLISECONDS = 1000;

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}

// Calls `ask` until the signal is aborted. Failures are told to `failed` and do not end it, but for one: a caller whom
// the server does not know is asked for a token first.
export async function poll(ask, milliseconds, signal, failed) {
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    const begun = performance.now();
    let wait = milliseconds;
    try {
      await ask();
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      failed(error);
      if (error.status === 401) return;
      wait = RETRY_MILLISECONDS;
    }
    await pause(Math.max(wait, (performance.now() - begun) * IDLE_SHARE), signal);
  }
}
