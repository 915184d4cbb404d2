// Elements, and formatting of times and names. Text is always set as text, never as HTML, and is printable. No other file
// sets texts of elements.

import { printable } from "./printable.js";

// Attributes that browsers show or read out.
const SHOWN = new Set(["title", "aria-label", "aria-roledescription", "placeholder", "alt"]);

/** h("a.plain", {href: "#", onclick: f}, "text", child, [children]) */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  set(element, attributes);
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...given.map((child) => (child instanceof Node ? child : printable(String(child)))));
  return element;
}

/** The same for SVG elements. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in { value: 1, checked: 1 }) element[name] = value;
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? printable(String(value)) : value);
  }
}

/** Set the text of an element, in place of its content. */
export function write(element, text) {
  element.textContent = printable(text);
}

export function writeTitle(text) {
  document.title = printable(text);
}

/** Announce a text to screen readers. */
export function say(text) {
  write(document.getElementById("live"), text);
}

// Times are in UTC, as in the log, in kubectl and on the command line, unless the visitor prefers the local time.
let local = false;
try { local = localStorage.getItem("times") === "local"; } catch { /* no storage: UTC */ }

export const isLocal = () => local;

export function useLocal(value) {
  local = value;
  try { localStorage.setItem("times", value ? "local" : "UTC"); } catch { /* it lasts as long as this page, then */ }
}

const MINUTE = 60000;
// The offset from UTC of a moment, in minutes: it changes with the season.
const offset = (time) => (local ? -new Date(time).getTimezoneOffset() : 0);

/** Return the zone of the shown times: UTC, UTC+2, UTC+5:30. */
export function zoneName() {
  const minutes = offset(Date.now());
  const hours = Math.trunc(Math.abs(minutes) / 60);
  const rest = Math.abs(minutes) % 60;
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}` : "UTC";
}

export function timeText(time, { seconds = true } = {}) {
  const text = new Date(new Date(time).getTime() + offset(time) * MINUTE).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, seconds ? 19 : 16)}`;
}

export function when(time) {
  return h("time", { datetime: time, title: `${time} (${ago(time)})` }, timeText(time));
}

export function ago(time) {
  const passed = (Date.now() - new Date(time)) / 1000;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (passed >= size * 2) return `${Math.floor(passed / size)}${unit} ago`;
  }
  return `${Math.max(0, Math.floor(passed))}s ago`;
}

/** A name, or the path of a field, that may be broken into lines at its separators. */
export function breakable(name) {
  return name.split(/(?<=[:/.=-])|(?=\[)/).flatMap((part, place) => (place ? [h("wbr"), part] : [part]));
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A labelled input of a form. */
export function field(label, input, hint) {
  return h("label.field", {}, h("span", {}, label), input, hint && h("small", {}, hint));
}

/** <select> of [value, text] pairs. */
export function choice(name, options, value) {
  return h("select", { name }, options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)));
}

/** Placeholder rows while loading. */
export function loading(rows = 8) {
  return h("div.loading", { "aria-hidden": "true" }, Array.from({ length: rows }, () => h("div.bar")));
}

/** A command in a box, with a button that copies it. */
export function copyable(command) {
  const code = h("code", { tabindex: "0" }, command);
  const button = h("button", { type: "button", onclick: copy, "aria-label": `Copy: ${command}` }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(command);
      write(button, "Copied");
    } catch {
      getSelection().selectAllChildren(code);
      write(button, "Selected");
    }
    say(`${button.textContent}: ${command}`);
  }
  return h("span.copyable", {}, code, button);
}
