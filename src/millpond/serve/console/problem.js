// Errors as a person can use them: the code, the cause and the fix.

import { el } from "./dom.js";
import { Problem } from "./api.js";

export function problemCard(error) {
  if (!(error instanceof Problem)) {
    return el("div", { class: "problem", role: "alert" }, el("code", {}, "console"), el("p", {}, error.message));
  }
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("code", {}, error.code),
    el("p", { class: "cause" }, error.detail || error.title),
    error.fix && el("p", { class: "fix" }, el("strong", {}, "Fix: "), error.fix),
  );
}

export function showProblem(place, error) {
  place.replaceChildren(problemCard(error));
}
