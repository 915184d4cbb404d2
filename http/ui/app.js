// The page: routing by its address, keys, theme. Addresses are like #/happened?q=alice. A view is loaded when it is shown.

import { h, isLocal, useLocal, write, writeTitle } from "./dom.js";
import { failed } from "./changes.js";
import { icon } from "./icons.js";

const PAGES = {
  happened: () => import("./home.js"), lanes: () => import("./lanes.js"), timeline: () => import("./timeline.js"), cluster: () => import("./cluster.js"), incident: () => import("./incident.js"),
  object: () => import("./object.js"), search: () => import("./search.js"), deleted: () => import("./deleted.js"), policies: () => import("./policies.js"), missing: () => import("./missing.js"),
};
const FIRST = "happened";
const KEYS = [["h", "What happened"], ["n", "Lanes"], ["t", "Timeline"], ["l", "Cluster at a moment"], ["i", "Incident: what changed before a moment"], ["s", "Search"], ["d", "Deleted objects"], ["p", "Policies that only audit"],
  ["/", "To the search box; twice: to the first field of the page"],
  ["j and k", "Down and up in a list"], ["Enter", "Open the selection"], ["c", "To the chart: arrows, Shift and arrows, Enter, −"],
  ["[ and ]", "Of an object: the revision before, the one after; of the cluster: the change"], ["u", "Times: UTC or local"], ["x", "Theme: as the system has it, dark, light"], ["?", "These keys"]];
const THEMES = ["system", "dark", "light"];

const main = document.getElementById("main");
let current = { keys: null, controller: new AbortController() };

function go(page, query = {}) {
  const path = [page].flat().map(encodeURIComponent).join("/");
  const asked = new URLSearchParams(query).toString();
  const hash = `#/${path}${asked ? `?${asked}` : ""}`;
  if (hash === location.hash) render();
  else location.hash = hash;
}

let shown = "";

async function render() {
  const [path, asked] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  const wanted = name || FIRST;
  const exists = Object.hasOwn(PAGES, wanted) && wanted !== "missing" && rest.length === (wanted === "object" ? 3 : 0);
  const page = exists ? wanted : "missing";
  current.controller.abort();
  const controller = new AbortController();
  current = { keys: null, controller };
  const held = focusedIn(main);
  const scrolled = document.querySelector(".scroll")?.scrollTop;
  const query = new URLSearchParams(asked ?? "");
  let made;
  try {
    made = (await PAGES[page]())[page]({ path: page === "missing" ? [path] : rest, query, go, signal: controller.signal });
  } catch (error) {
    if (!controller.signal.aborted) failed(main, error);
    return;
  }
  if (controller.signal.aborted) return; // another view was asked for meanwhile
  current.keys = made.keys;
  main.replaceChildren(made.element);
  main.dataset.address = location.hash;
  writeTitle(`${made.title} · kubechronicle`);
  find.elements.find.value = page === FIRST ? query.get("q") ?? "" : "";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // The same page with other values keeps its scroll position; another one begins at the top.
  const same = shown === page + rest.join("/");
  shown = page + rest.join("/");
  if (same) restore(held, scrolled);
  else if (![document.body, find.elements.find].includes(document.activeElement) || held) main.focus({ preventScroll: true });
  if (!same) scrollTo(0, 0);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a mistyped address
  }
}

// -- search ----------------------------------------------------------------------------------------------------------

const find = document.getElementById("find");
find.addEventListener("submit", (event) => {
  event.preventDefault();
  go("happened", find.elements.find.value.trim() ? { q: find.elements.find.value.trim() } : {});
});
for (const link of document.querySelectorAll("nav a")) link.prepend(icon(link.dataset.icon));

// Return the focused element by attributes that survive a new rendering.
function focusedIn(element) {
  const active = document.activeElement;
  if (!element.contains(active)) return null;
  if (active.classList.contains("frame")) return ".frame";
  if (active.role === "tab") return '[role="tab"][aria-selected="true"]';
  if (active.type === "radio") return `input[type="radio"][name="${active.name}"][value="${CSS.escape(active.value)}"]`;
  return active.name ? `[name="${active.name}"]` : "h1";
}

function restore(selector, scrolled) {
  if (!selector) return;
  const found = () => {
    const element = main.querySelector(selector);
    if (element) {
      if (selector === "h1") element.setAttribute("tabindex", "-1");
      element.focus({ preventScroll: true });
      const list = document.querySelector(".scroll");
      if (list && scrolled) list.scrollTop = scrolled;
    }
    return element;
  };
  if (found()) return;
  const watcher = new MutationObserver(() => { if (found() || document.activeElement !== document.body) watcher.disconnect(); });
  watcher.observe(main, { childList: true, subtree: true });
}

// -- theme -----------------------------------------------------------------------------------------------------------

const themeButton = document.getElementById("theme");

function theme(next) {
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  write(themeButton, `Theme: ${next}`);
  try { localStorage.setItem("theme", next); } catch { /* it lasts as long as this page, then */ }
}

const chosen = () => document.documentElement.dataset.theme ?? "system";
const turn = () => theme(THEMES[(THEMES.indexOf(chosen()) + 1) % THEMES.length]);
themeButton.addEventListener("click", turn);
write(themeButton, `Theme: ${chosen()}`);

// -- times -----------------------------------------------------------------------------------------------------------

const timesButton = document.getElementById("times");
const nameTimes = () => write(timesButton, `Times: ${isLocal() ? "local" : "UTC"}`);

function turnTimes() {
  useLocal(!isLocal());
  nameTimes();
  render();
}

timesButton.addEventListener("click", turnTimes);
nameTimes();

// -- keys ------------------------------------------------------------------------------------------------------------

const help = document.getElementById("help");
help.append(h("h2", { id: "help-title" }, "Keys"), h("dl", {}, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
  h("form", { method: "dialog" }, h("button", {}, "Close")));
document.getElementById("help-open").addEventListener("click", () => help.showModal());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

function step(by) {
  const links = [...main.querySelectorAll("tbody a.object, tbody a[data-rev], .row .deed .object")];
  if (!links.length) return;
  const place = links.indexOf(document.activeElement);
  links[Math.min(Math.max(place + by, 0), links.length - 1)].focus();
}

const ACTIONS = {
  h: () => go("happened"), n: () => go("lanes"), t: () => go("timeline"), l: () => go("cluster"), i: () => go("incident"), s: () => go("search"), d: () => go("deleted"), p: () => go("policies"),
  "/": () => find.elements.find.select(),
  c: () => main.querySelector(".frame")?.focus(),
  j: () => step(1), k: () => step(-1), u: turnTimes, x: turn, "?": () => help.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input:not([type=radio], [type=checkbox]), select, textarea");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    else if (event.key === "/" && event.target === find.elements.find && !event.target.value) main.querySelector("[data-search]")?.focus();
    else return;
    event.preventDefault();
    return;
  }
  const action = current.keys?.(event.key) || ACTIONS[event.key];
  if (!action) return;
  if (typeof action === "function") action();
  event.preventDefault();
});

// A click on a row follows its link.
main.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-href]");
  if (row && !event.target.closest("a, button, input, code") && !getSelection().toString()) location.hash = row.dataset.href;
});

addEventListener("hashchange", render);
render();
