// Elements are made here and nowhere else. Text goes in as text: there is no way to pass markup, so a record or a name
// that looks like markup stays what it is.

const SVG = "http://www.w3.org/2000/svg";

// el("a", {class: "x", href: "#", onclick: go}, "text", child). Properties that are null, undefined or false are left out.
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Changes the text only if it differs, so that what a person has selected stays selected.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

let ids = 0;

// A labelled control: the label's text, the control, and a hint that screen readers read with it.
export function field(label, control, hint = "") {
  ids += 1;
  control.id = `field-${ids}`;
  const parts = [el("label", { for: control.id }, label), control];
  if (hint) {
    control.setAttribute("aria-describedby", `hint-${ids}`);
    parts.push(el("small", { class: "hint", id: `hint-${ids}` }, hint));
  }
  return el("div", { class: "field" }, parts);
}

export function button(text, onclick, properties = {}) {
  return el("button", { type: "button", onclick, ...properties }, text);
}
