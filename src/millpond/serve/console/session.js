// Who is calling and what they may do, from `GET /v1`; the token dialog; controls that need a right.

import { button, el, field, setText } from "./dom.js";
import { events, getJson, token } from "./api.js";
import { openDialog } from "./dialog.js";
import { showProblem } from "./problem.js";

export const session = { node: null };

// Asks the server who we are. Throws a `Problem` if it does not know us.
export async function meet() {
  session.node = await getJson("/v1");
  setText(document.getElementById("caller"), session.node.caller);
  setText(document.getElementById("node"), `Millpond ${session.node.version}`);
  events.dispatchEvent(new Event("met"));
}

function covers(prefix, stream) {
  return prefix === "" || stream === prefix || stream.startsWith(`${prefix}/`);
}

// Whether the caller has a right on a stream; "" is the pond as a whole.
export function may(right, stream = "") {
  return (session.node?.grants ?? []).some(([prefix, rights]) => rights.includes(right) && covers(prefix, stream));
}

// Disables a control that the caller has no right for, and says why. Returns the control.
export function guard(control, right, stream = "") {
  if (!may(right, stream)) {
    control.disabled = true;
    control.title = `${session.node?.caller ?? "You"}: no right to ${right} ${stream || "the pond as a whole"}`;
  }
  return control;
}

let asking = null;

export function askForToken(problem) {
  const kept = document.querySelector("dialog.keep");
  if (kept) kept.addEventListener("close", () => askForToken(problem), { once: true });
  if (kept || asking) return;
  const input = el("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const message = el("div", {});
  asking = openDialog("A token, please", {
    body: [
      el("p", {}, "This server asks for a token. It is kept in this tab only and forgotten when the tab is closed."),
      field("Token", input, "millpond token create prints one"),
      message,
    ],
    action: "Use it",
    async onsubmit(dialog) {
      token.set(input.value.trim());
      try {
        await meet();
      } catch (error) {
        token.forget();
        showProblem(message, error);
        input.select();
        return;
      }
      dialog.close();
      location.reload();
    },
    onclose: () => {
      asking = null;
    },
  });
  if (problem && token.get()) showProblem(message, problem);
}

export function showCaller() {
  if (!session.node) {
    askForToken();
    return;
  }
  const grants = session.node.grants.map(([prefix, rights]) =>
    el("li", {}, el("strong", {}, rights.join(", ")), ` on ${prefix === "" ? "everything" : prefix}`),
  );
  const forget = button("Forget the token", () => {
    token.forget();
    location.reload();
  });
  if (!token.get()) {
    forget.disabled = true;
    forget.title = "No token is in use";
  }
  openDialog(`You are ${session.node.caller}`, {
    body: [
      el("p", {}, token.get() ? "By the token of this tab, you may:" : "Without a token, you may:"),
      el("ul", {}, grants.length ? grants : el("li", {}, "nothing")),
      el("div", { class: "row" }, forget, button("Use another token…", (event) => {
        event.target.closest("dialog").close();
        askForToken();
      })),
    ],
  });
}

events.addEventListener("unauthenticated", (event) => askForToken(event.detail));
