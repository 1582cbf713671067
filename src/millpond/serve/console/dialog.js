// Modal dialogs. The browser's own: Escape closes them, focus stays inside and goes back to where it was.

import { button, el } from "./dom.js";

// Opens a dialog with a title, a body and, if there is an `action`, a button that calls `onsubmit(dialog)`.
// `danger` marks what cannot be undone; `ready(submit)` gets the button before the dialog is shown.
// `keep`: it holds what a person has not kept yet, so that nothing may be opened over it.
export function openDialog(title, { body, action, onsubmit, onclose, danger, ready, keep }) {
  const heading = el("h2", { id: "dialog-title" }, title);
  const close = button(action ? "Cancel" : "Close", () => dialog.close());
  const submit = action && el("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const form = el("form", { novalidate: true }, heading, body, el("div", { class: "row end" }, close, submit));
  const dialog = el("dialog", { "aria-labelledby": "dialog-title", class: keep ? "keep" : null }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!submit || submit.disabled) return;
    const bad = form.querySelector(":invalid");
    if (bad) {
      bad.reportValidity();
      return;
    }
    submit.disabled = true;
    try {
      await onsubmit(dialog);
    } finally {
      submit.disabled = false;
    }
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    onclose?.();
  });
  document.body.append(dialog);
  ready?.(submit);
  dialog.showModal();
  (form.querySelector("input, textarea, select") ?? close).focus();
  return dialog;
}
