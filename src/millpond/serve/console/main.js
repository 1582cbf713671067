// Where it starts: which page is shown, by the part of the address after "#", and what is on all pages.

import { askForToken, meet, session, showCaller } from "./session.js";
import { events, Problem } from "./api.js";
import { button, el, setText } from "./dom.js";
import { failed, lookNow, online, watch } from "./watch.js";
import { listenToKeys, showKeys } from "./keys.js";
import { pause } from "./poll.js";
import { problemCard } from "./problem.js";
import { setUpTheme } from "./theme.js";
import { activityPage } from "./activity.js";
import { pipelinesPage } from "./pipelines.js";
import { queryPage } from "./query.js";
import { streamPage } from "./stream.js";
import { streamsPage } from "./streams.js";
import { tokensPage } from "./tokens.js";

const RETRY_MILLISECONDS = 1000;

// A page fills `main` and lives until the signal is aborted.
const PAGES = {
  streams: (main, signal, rest) => (rest ? streamPage(main, signal, rest) : streamsPage(main, signal)),
  query: queryPage,
  pipelines: pipelinesPage,
  activity: activityPage,
  tokens: tokensPage,
};

const main = document.getElementById("main");
let leaving = new AbortController();

function route() {
  const [path, parameters = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [word, ...rest] = path.split("/");
  const page = word in PAGES ? word : "streams";
  leaving.abort();
  leaving = new AbortController();
  main.replaceChildren();
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const name = word in PAGES ? rest.map(decodeURIComponent).join("/") : "";
  document.title = `${name || page[0].toUpperCase() + page.slice(1)} · Millpond`;
  PAGES[page](main, leaving.signal, name, new URLSearchParams(parameters));
}

function showLink() {
  const banner = document.getElementById("away");
  banner.hidden = watch.away === null;
  setText(banner, watch.away === null ? "" : "The server does not answer. Trying again…");
}

function closedGate() {
  return el("section", { class: "empty" },
    el("h1", {}, "This server asks for a token"),
    el("p", {}, "It says who you are and what you may do."),
    button("Give a token…", () => askForToken(), { class: "primary" }));
}

async function start() {
  for (;;) {
    try {
      await meet();
      break;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (!error.away) {
        main.replaceChildren(error.status === 401 ? closedGate() : problemCard(error));
        return;
      }
      failed(error);
      await pause(RETRY_MILLISECONDS);
    }
  }
  online();
  window.addEventListener("hashchange", () => {
    // The link that skips the header leads to a place on the page, not to another page.
    if (location.hash === "#main") return;
    route();
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  });
  route();
  lookNow();
}

document.getElementById("caller").addEventListener("click", () => (session.node ? showCaller() : askForToken()));
document.getElementById("help").addEventListener("click", showKeys);
watch.addEventListener("link", showLink);
events.addEventListener("changed", lookNow);
setUpTheme(document.getElementById("theme"));
listenToKeys();
start();
