// The consumer groups of a stream: how far each is, who works in it, what it gave up on; and moving it elsewhere, which
// is shown before it is done.

import { button, el, field, setText } from "./dom.js";
import { count, plural } from "./format.js";
import { getJson, groupPath, sendJson, streamPath, withQuery } from "./api.js";
import { failed } from "./watch.js";
import { guard } from "./session.js";
import { offsetsCell, total } from "./standing.js";
import { openDialog } from "./dialog.js";
import { poll } from "./poll.js";
import { showProblem } from "./problem.js";
import { streamHref } from "./places.js";

const EVERY_MILLISECONDS = 2000;
// More members than this are counted, not named.
const MEMBERS_MAX = 8;
const PLACES = { earliest: "the beginning", latest: "the end", time: "a time of ingestion", offset: "an offset" };

function offsetsText(offsets) {
  return Object.entries(offsets).map(([streamlet, offset]) => `${streamlet}: ${count(offset)}`).join(", ");
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]).flat());
}

function changeFacts(change) {
  return facts([
    ["From", offsetsText(change.before)],
    ["To", offsetsText(change.after)],
    ["Processed again", plural(change.again, "record")],
    ["Skipped", plural(change.skipped, "record")],
    ["Expelled", change.expelled.length ? change.expelled.join(", ") : "nobody"],
  ]);
}

// First where to, then what that means, then whether to do it: "Show" asks the server, "Move" is there once it answered.
function resetGroup(stream, group, done) {
  const path = groupPath(stream, group, "reset");
  const place = el("select", {}, Object.entries(PLACES).map(([value, text]) => el("option", { value }, text)));
  const where = el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const whereField = field("Which", where, "A time such as 2026-01-31T12:00:00Z; an offset such as 120, or 0:120,1:96.");
  const plan = el("div", { "aria-live": "polite" });
  const message = el("div", {});
  let move;
  let asked = 0;
  const to = () => (place.value === "time" || place.value === "offset" ? where.value.trim() : place.value);

  async function show() {
    asked += 1;
    const mine = asked;
    move.disabled = true;
    message.replaceChildren();
    whereField.hidden = place.value !== "time" && place.value !== "offset";
    plan.replaceChildren();
    if (!to()) return;
    try {
      const change = await sendJson("POST", path, { to: to() });
      if (mine !== asked) return; // somebody has typed on
      plan.replaceChildren(changeFacts(change));
      move.disabled = false;
    } catch (error) {
      if (mine === asked) showProblem(message, error);
    }
  }

  place.addEventListener("change", show);
  where.addEventListener("change", show);
  openDialog(`Move ${group}`, {
    danger: true,
    body: [
      el("p", {}, "The group goes on from another place. Its members lose what they have not committed, and go on from there."),
      field("To", place),
      whereField,
      plan,
      message,
    ],
    action: "Move the group",
    ready: (submit) => {
      move = submit;
      show();
    },
    async onsubmit(dialog) {
      let change;
      try {
        change = await sendJson("POST", withQuery(path, { preview: "false" }), { to: to() });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done(`${group} goes on from ${offsetsText(change.after)}.`);
    },
  });
}

function deleteGroup(stream, status, done) {
  const message = el("div", {});
  openDialog(`Delete ${status.group}`, {
    danger: true,
    body: [
      el("p", {}, "The group and its position are forgotten. Consumers that go on make it anew, from where they are told to start."),
      facts([
        ["Position", offsetsText(status.positions)],
        ["Not processed", plural(total(status.lag), "record")],
        ["Expelled", status.members.length ? status.members.map((member) => member.instance).join(", ") : "nobody"],
      ]),
      message,
    ],
    action: "Forget it",
    async onsubmit(dialog) {
      try {
        await getJson(groupPath(stream, status.group), { method: "DELETE" });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done(`${status.group} is forgotten.`);
    },
  });
}

function replayDead(stream, status, done) {
  const message = el("div", {});
  openDialog(`Dead letters of ${status.group}`, {
    body: [
      el("p", {}, `${plural(status.dead, "record")} went to the dead letters, with the reason, since the group was made. `
        + "Those that were not sent back yet are appended to the stream again, each once: all of its groups see them."),
      el("p", {}, el("a", { href: streamHref(`${stream}/dead`) }, "Look at them")),
      message,
    ],
    action: "Send them back",
    async onsubmit(dialog) {
      let report;
      try {
        report = await getJson(withQuery(streamPath(stream, "replay"), { group: status.group }), { method: "POST" });
      } catch (error) {
        showProblem(message, error);
        return;
      }
      dialog.close();
      done(`${plural(report.records, "record")} sent back.`);
    },
  });
}

function membersText(members) {
  if (!members.length) return "nobody";
  const named = members.slice(0, MEMBERS_MAX).map((member) => (member.records ? `${member.instance} (${count(member.records)})` : member.instance));
  return members.length > MEMBERS_MAX ? `${named.join(", ")} and ${count(members.length - MEMBERS_MAX)} more` : named.join(", ");
}

// One line of the table; it stays while the group does, so that a button keeps the focus while numbers move.
function groupRow(stream, first, done) {
  let status = first;
  const parts = {
    lag: el("strong", {}),
    bar: el("meter", { min: "0", "aria-label": `What ${first.group} has processed` }),
    offsets: offsetsCell(),
    members: el("span", {}),
    missed: el("small", { class: "bad" }),
    dead: button("", () => replayDead(stream, status, done), { class: "link" }),
  };
  guard(parts.dead, "admin", stream);
  const kind = first.by === null ? first.strategy.replace("_", " ") : `${first.strategy} of ${first.by}`;
  const node = el("tr", {},
    el("th", { scope: "row" }, first.group, " ", el("span", { class: "mark" }, kind)),
    el("td", { class: "number" }, parts.lag, " ", parts.bar),
    el("td", { class: "number" }, parts.offsets.node),
    el("td", {}, parts.members, parts.missed),
    el("td", { class: "number" }, parts.dead),
    el("td", {}, el("div", { class: "row" },
      guard(button("Move…", () => resetGroup(stream, first.group, done), { "aria-label": `Move ${first.group}…` }), "admin", stream),
      guard(button("Delete…", () => deleteGroup(stream, status, done), { "aria-label": `Delete ${first.group}…`, class: "danger" }), "admin", stream))));
  const update = (now) => {
    status = now;
    const [head, lag] = [total(now.heads), total(now.lag)];
    setText(parts.lag, count(lag));
    parts.bar.max = Math.max(head, 1);
    parts.bar.value = head ? head - lag : 1;
    parts.offsets.update(now.positions, now.heads);
    setText(parts.members, membersText(now.members));
    setText(parts.missed, now.missed ? ` ${plural(now.missed, "record")} missed` : "");
    setText(parts.dead, now.dead ? `${count(now.dead)}: send back…` : "");
    parts.dead.hidden = !now.dead;
  };
  update(first);
  return { node, update };
}

export function groupsSection(name, signal) {
  const rows = new Map();
  const body = el("tbody", {});
  const note = el("p", { class: "waiting" });
  const said = el("p", { class: "done", role: "status", "aria-live": "polite" });
  const heads = ["Group", "Lag", "Position → head", "Members", "Dead", ""];
  const table = el("table", { class: "records groups", "aria-label": `Consumer groups of ${name}` },
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: [1, 2, 4].includes(at) ? "number" : null }, head)))), body);
  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Consumer groups", hidden: true }, table);

  async function look() {
    const found = await getJson(streamPath(name, "groups"), { signal });
    const there = new Set(found.map((status) => status.group));
    for (const [group, row] of rows) {
      if (there.has(group)) continue;
      row.node.remove();
      rows.delete(group);
    }
    for (const status of found) {
      const known = rows.get(status.group);
      if (known) {
        known.update(status);
        continue;
      }
      const made = groupRow(name, status, done);
      rows.set(status.group, made);
      body.append(made.node);
    }
    scroll.hidden = found.length === 0;
    setText(note, found.length ? "" : "None yet: a consumer makes one by joining it.");
  }

  async function done(text) {
    setText(said, text);
    try {
      await look();
    } catch (error) {
      if (!signal.aborted) showProblem(note, error);
    }
  }

  poll(look, EVERY_MILLISECONDS, signal, failed);
  return el("section", { class: "card", "aria-label": "Groups" }, el("div", { class: "bar" }, el("h2", {}, "Consumer groups")), said, scroll, note);
}
