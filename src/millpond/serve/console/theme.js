// Dark or light: as the system says, unless a person chose. The choice is no secret and outlives the tab.

import { svg } from "./dom.js";

const KEPT = "millpond.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const PICTURES = {
  system: ["M12 3a9 9 0 0 0 0 18z", "M12 3a9 9 0 0 1 0 18"],
  light: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5"],
  dark: ["M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z"],
};

export function setUpTheme(button) {
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-label", `Theme: ${theme}. Change to ${NEXT[theme]}`);
    button.title = `Theme: ${theme}`;
    button.replaceChildren(
      svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: `theme-${theme}` },
        PICTURES[theme].map((d) => svg("path", { d }))),
    );
  };
  button.addEventListener("click", () => {
    const theme = NEXT[document.documentElement.dataset.theme];
    localStorage.setItem(KEPT, theme);
    show(theme);
  });
  const kept = localStorage.getItem(KEPT);
  show(kept in NEXT ? kept : "system");
}
