// The tokens of the pond, for those who administer it. A new one's secret is shown once, and never kept here.

import { button, el, field } from "./dom.js";
import { getJson, sendJson, token as mine } from "./api.js";
import { may, session } from "./session.js";
import { openDialog } from "./dialog.js";
import { showProblem } from "./problem.js";
import { when } from "./when.js";

const RIGHTS = ["read", "write", "admin"];

function showSecret({ token, info }) {
  const secret = el("code", { class: "secret", tabindex: "0" }, token);
  openDialog(`Token ${info.name}`, {
    keep: true,
    body: [
      el("p", {}, "This is the only time that it is shown. Keep it where secrets are kept."),
      secret,
      el("div", { class: "row" }, button("Copy", async (event) => {
        await navigator.clipboard.writeText(token);
        event.target.textContent = "Copied";
      }), button("Use it in this tab", () => {
        mine.set(token);
        location.reload();
      })),
    ],
  });
}

function createToken(done) {
  const name = el("input", { type: "text", required: true, maxlength: "64", autocapitalize: "off", spellcheck: "false" });
  const prefixes = el("input", { type: "text", placeholder: "everything", autocapitalize: "off", spellcheck: "false" });
  const rights = RIGHTS.map((right) => el("input", { type: "checkbox", value: right, checked: right === "read" }));
  const message = el("div", {});
  openDialog("New token", {
    body: [
      field("Name", name, "Whose it is: it stands in logs"),
      el("fieldset", {}, el("legend", {}, "Rights"), rights.map((box) => el("label", { class: "check" }, box, box.value))),
      field("Streams", prefixes, "First parts of names, joined by commas; empty: everything, and the pond as a whole"),
      message,
    ],
    action: "Create",
    async onsubmit(dialog) {
      const wanted = prefixes.value.split(",").map((prefix) => prefix.trim()).filter(Boolean);
      let made;
      try {
        made = await sendJson("POST", "/v1/tokens", {
          name: name.value.trim(),
          rights: rights.filter((box) => box.checked).map((box) => box.value),
          prefixes: wanted.length ? wanted : [""],
        });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      showSecret(made);
      done();
    },
  });
}

function revokeToken(info, done) {
  const message = el("div", {});
  openDialog(`Revoke ${info.name}`, {
    danger: true,
    body: [
      el("p", {}, "Whoever uses it is refused from then on."),
      info.name === session.node.caller && el("p", { class: "bad" }, "This looks like the token that you are using."),
      message,
    ],
    action: "Revoke",
    async onsubmit(dialog) {
      try {
        await getJson(`/v1/tokens/${encodeURIComponent(info.id)}`, { method: "DELETE" });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done();
    },
  });
}

export function tokensPage(main, signal) {
  const heading = el("h1", {}, "Tokens");
  if (!may("admin")) {
    main.replaceChildren(heading, el("p", { class: "waiting" }, "This needs the right to administer the pond as a whole."));
    return;
  }
  const body = el("tbody", {});
  const message = el("div", {});
  const none = el("p", { class: "waiting" }, "Looking…");
  const table = el("table", { class: "records", "aria-label": "Tokens" },
    el("thead", {}, el("tr", {}, ["Name", "Rights", "Streams", "Made", "Id", ""].map((head) => el("th", { scope: "col" }, head)))), body);

  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tokens", hidden: true }, table);
  const card = el("div", { class: "card flush" }, scroll, none);

  function rowOf(info) {
    const revoke = button("Revoke…", () => revokeToken(info, refresh), { class: "danger", "aria-label": `Revoke ${info.name}` });
    return el("tr", {},
      el("th", { scope: "row" }, info.name),
      el("td", {}, info.rights.map((right) => el("span", { class: "mark" }, right))),
      el("td", {}, info.prefixes.map((prefix) => prefix || "everything").join(", ")),
      el("td", {}, when(Date.parse(info.created))),
      el("td", {}, el("code", {}, info.id)),
      el("td", { class: "number" }, revoke));
  }

  async function refresh() {
    try {
      const found = await getJson("/v1/tokens", { signal });
      message.replaceChildren();
      body.replaceChildren(...found.map(rowOf));
      card.hidden = false;
      scroll.hidden = found.length === 0;
      none.hidden = found.length > 0;
      none.textContent = "None yet. While there is none, whoever reaches this server may do everything.";
    } catch (error) {
      card.hidden = true;
      // Who is not known is asked for a token already.
      if (!signal.aborted && error.status !== 401) showProblem(message, error);
    }
  }

  main.replaceChildren(
    el("div", { class: "bar" }, heading, el("span", { class: "grow" }), button("New token…", () => createToken(refresh), { class: "primary", "data-key": "n" })),
    message,
    card);
  refresh();
}
