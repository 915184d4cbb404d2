// The timeline: the number of changes over time, grouped, and their list. Drag over the chart, or use its keys, to zoom.

import { choice, count, field, h, s, say, timeText, write, zoneName } from "./dom.js";
import { begin, density, selector } from "./api.js";
import { ChangeList, NOISE, failed } from "./changes.js";
import { complete } from "./facets.js";

const RANGES = [["fit", "fit to changes"], ["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"],
  ["7d", "7 days"], ["30d", "30 days"], ["all", "everything kept"]];
const BYS = [["resource", "kind"], ["user", "user"], ["namespace", "namespace"], ["operation", "operation"]];
// The selector for a click on a name of the legend.
const SELECTS = { resource: "object.resource", user: "who.username", operation: "operation" };
// Milliseconds between two looks for new changes.
const LIVE = 2000;
const UNITS = { m: 60, h: 3600, d: 86400 };
const WIDTHS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800, 2592000];
const COLOURS = 10;
const [WIDE, HIGH, FOOT] = [960, 200, 22];

export function timeline({ query, go, signal }) {
  const state = {
    range: "fit", from: "", to: "", by: "resource", ns: "", q: "", noise: "", live: "", ...Object.fromEntries(query),
  };
  const chart = h("div.chart", { "aria-busy": "true" });
  const legend = h("div.legend", { "aria-label": "Legend" });
  const list = new ChangeList({ empty: "There are no changes in this time that match." });
  const form = h("form.filters", { onsubmit: (event) => { event.preventDefault(); change(read(form)); } },
    field("Last", choice("range", state.from ? [["", "as zoomed"], ...RANGES] : RANGES, state.from ? "" : state.range)),
    field("By", choice("by", BYS, state.by)),
    field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", autocomplete: "off", spellcheck: "false" })),
    field("Selector", h("input", { name: "q", value: state.q, size: "34", placeholder: "object.kind=Deployment,who.username=jane",
      "data-search": true, autocomplete: "off", spellcheck: "false" })),
    h("button", { type: "submit" }, "Show"));
  const toggle = (name, text, title, kind = "span") => h("label.toggle", { title }, h("input", { type: "checkbox", name, checked: Boolean(state[name]),
    onchange: (event) => change({ ...read(), [name]: event.target.checked ? "1" : "" }) }), h(kind, {}, text));
  const toggles = h("div.toggles", {}, toggle("noise", "Events, leases, addresses", "Also changes that programs make all the time"),
    toggle("live", "Live", "Show new changes as they happen", "span.live"));
  complete(form);
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", () => change(read(form)));

  function read() {
    const values = Object.fromEntries(new FormData(form));
    const zoomed = values.range === "" ? { from: state.from, to: state.to } : { from: "", to: "" };
    return { ...values, range: values.range || state.range, ...zoomed };
  }

  function change(values) {
    const next = { ...state, ...values };
    const usual = { range: "fit", by: "resource" };
    go("timeline", Object.fromEntries(Object.entries(next).filter(([name, value]) => value && value !== usual[name])));
  }

  const zoom = (from, to) => change({ from: new Date(from).toISOString(), to: new Date(to).toISOString() });

  // The range that the visitor chose or, without a choice, one that begins with the changes of the last day.
  async function ranged() {
    if (state.from || state.range !== "fit") return state;
    const since = await begin(state.ns, state.q, state.noise ? "" : NOISE, signal).catch(() => NaN);
    return Number.isNaN(since) ? { ...state, range: "24h" } : { ...state, from: new Date(since).toISOString(), to: new Date().toISOString() };
  }

  async function load() {
    const shown = await ranged();
    const open = !state.from && shown.from;
    const bounds = shown.from
      ? { "time.from": shown.from, ...(open ? {} : { "time.to": shown.to }) } : shown.range === "all" ? {} : { "time.from": shown.range };
    const fields = selector(state.q, state.noise ? "" : NOISE, bounds);
    const listed = list.show(state.ns, fields, signal);
    try {
      let [from, to] = span(shown);
      const seconds = from === null ? 0 : WIDTHS.find((width) => (to - from) / 1000 / width <= 110) ?? WIDTHS.at(-1);
      const found = await density(state.ns, fields, { by: state.by, bucket: seconds ? `${seconds}s` : "" }, signal);
      const width = found.bucketSeconds * 1000;
      if (from === null) {
        from = found.buckets.length ? Date.parse(found.buckets[0].time) : Date.now() - width;
        to = found.buckets.length ? Date.parse(found.buckets.at(-1).time) + width : Date.now();
      }
      legend.replaceChildren(...names(found, state, change));
      chart.replaceChildren(...draw(found, Math.floor(from / width) * width, Math.ceil(to / width) * width, zoom, () => zoomOut(from, to)));
    } catch (error) {
      failed(chart, error);
    }
    chart.removeAttribute("aria-busy");
    await listed;
    if (state.live) list.follow(state.ns, selector(state.q, state.noise ? "" : NOISE), signal, LIVE);
  }

  function zoomOut(from, to) {
    const half = (to - from) / 2;
    if (to - from > 400 * 86400e3) change({ from: "", to: "", range: "all" });
    else zoom(from - half, Math.min(to + half, Date.now()));
  }

  load();
  return { title: "Timeline", element: h("div.page", {}, h("div.heading", {}, h("h1", {}, "Timeline"), toggles), form, h("section.density", { "aria-label": "Changes over time" }, chart, legend), list.element) };
}

function span(state) {
  if (state.from) return [Date.parse(state.from), Date.parse(state.to)];
  if (state.range === "all") return [null, null];
  const now = Date.now();
  return [now - parseInt(state.range, 10) * UNITS[state.range.at(-1)] * 1000, now];
}

function names(found, state, change) {
  const total = h("b", {}, count(found.total, "change"));
  const colour = colours(found.series);
  const shown = found.series.map(({ name, count: changes }) => {
    const field = SELECTS[state.by];
    const text = [h(`i.series-${colour.get(name)}`), `${label(name, state.by)} `, h("span.faint", {}, changes.toLocaleString("en"))];
    const pick = () => (state.by === "namespace" ? change({ ns: name }) : change({ q: selector(state.q, { [field]: name }) }));
    return name ? h("button.name", { type: "button", title: `Only ${name}`, onclick: pick }, text) : h("span.name", {}, text);
  });
  if (found.others) shown.push(h("span.name", {}, h("i.series-others"), "others ", h("span.faint", {}, found.others.toLocaleString("en"))));
  return [total, ...shown];
}

// The colour of each name: that of its hash, or else the next one that no larger series has. So names keep their colours
// in other times and selections.
function colours(series) {
  const found = new Map();
  for (const { name } of series) {
    let at = [...name].reduce((hash, each) => (hash * 31 + each.codePointAt(0)) % 65521, 0) % COLOURS;
    if (found.size < COLOURS) while ([...found.values()].includes(at)) at = (at + 1) % COLOURS;
    found.set(name, at);
  }
  return found;
}

// Kinds without their group; other places show the whole name.
const label = (name, by) => (by === "resource" ? name.split(".")[0] : name || "in no namespace");

function draw(found, from, to, zoom, zoomOut) {
  const width = found.bucketSeconds * 1000;
  const places = Math.max(1, Math.round((to - from) / width));
  const most = Math.max(1, ...found.buckets.map((bucket) => bucket.count));
  const at = new Map(found.buckets.map((bucket) => [Math.round((Date.parse(bucket.time) - from) / width), bucket]));
  const step = WIDE / places;
  const colour = colours(found.series);
  const bars = [...at].filter(([place]) => place >= 0 && place < places).flatMap(([place, bucket]) => column(bucket, place * step, step, most, found, colour));
  const selection = s("rect", { class: "selection", y: 0, height: HIGH, width: 0 });
  const cursor = s("rect", { class: "cursor", y: 0, height: HIGH, width: Math.max(step, 2), visibility: "hidden" });
  const picture = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH + FOOT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...grid(most), cursor, ...bars, selection);
  const status = h("output.chart-status", {}, found.total ? "Drag over the chart to zoom; with the keyboard, use the arrows, Shift and Enter." : "There are no changes in this time.");
  const frame = h("div.frame", { tabindex: "0", role: "group", "aria-roledescription": "chart",
    "aria-label": `Changes from ${timeText(from)} to ${timeText(to)} ${zoneName()}, at most ${most} in ${length(found.bucketSeconds)}. `
      + "Left and right move, with Shift they select, Enter zooms in, minus or Backspace zooms out." },
    picture, h("span.most", { "aria-hidden": "true" }, most.toLocaleString("en")));
  control(frame, { places, at, from, width, step, selection, cursor, status, zoom, zoomOut });
  const middle = from + (to - from) / 2;
  const axis = h("div.axis", { "aria-hidden": "true" }, [from, middle, to].map((time) => h("span", {}, timeText(time, { seconds: to - from < 600e3 }))));
  const buttons = h("span.zoom", {},
    h("button", { type: "button", title: "Earlier", "aria-label": "Earlier", onclick: () => zoom(from - (to - from) / 2, to - (to - from) / 2) }, "◀"),
    h("button", { type: "button", title: "Later", "aria-label": "Later", onclick: () => zoom(from + (to - from) / 2, to + (to - from) / 2) }, "▶"),
    h("button", { type: "button", title: "Zoom out (−)", "aria-label": "Zoom out", onclick: zoomOut }, "−"));
  return [frame, axis, h("div.below", {}, status, buttons)];
}

function column(bucket, x, width, most, found, colour) {
  const parts = [...found.series.map(({ name }) => [`series-${colour.get(name)}`, bucket.counts[name] ?? 0]), ["series-others", bucket.others ?? 0]];
  let y = HIGH;
  return parts.filter(([, changes]) => changes).map(([series, changes]) => {
    const height = Math.max((changes / most) * (HIGH - 6), 1);
    y -= height;
    return s("rect", { class: series, x, y, width: Math.max(width - Math.min(1, width / 4), 0.5), height });
  });
}

const grid = () => [0.25, 0.5, 0.75, 1].map((part) => s("line", { class: "grid", x1: 0, x2: WIDE, y1: HIGH * part, y2: HIGH * part }));

function length(seconds) {
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= size) return count(seconds / size, unit);
  }
  return count(seconds, "second");
}

// Pointer and keys. The selection is a range of buckets, from ``anchor`` to ``here``.
function control(frame, { places, at, from, width, step, selection, cursor, status, zoom, zoomOut }) {
  let [anchor, here] = [null, null];
  const time = (place) => from + place * width;
  const inside = (place) => Math.min(Math.max(place, 0), places - 1);

  function show() {
    cursor.setAttribute("visibility", here === null ? "hidden" : "visible");
    if (here === null) return;
    cursor.setAttribute("x", here * step);
    const [low, high] = [Math.min(anchor ?? here, here), Math.max(anchor ?? here, here)];
    selection.setAttribute("x", low * step);
    selection.setAttribute("width", anchor === null ? 0 : (high - low + 1) * step);
    let changes = 0;
    for (let place = low; place <= high; place++) changes += at.get(place)?.count ?? 0;
    const kinds = low === high ? Object.entries(at.get(low)?.counts ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 4)
      .map(([name, number]) => `${name || "in no namespace"} ${number}`).join(", ") : "";
    write(status, `${timeText(time(low))} to ${timeText(time(high + 1)).slice(11)}: ${count(changes, "change")}${kinds && ` (${kinds})`}`);
  }

  const zoomIn = () => zoom(time(Math.min(anchor ?? here, here)), time(Math.max(anchor ?? here, here) + 1));
  const placeOf = (event) => {
    const box = frame.getBoundingClientRect();
    return inside(Math.floor(((event.clientX - box.left) / box.width) * places));
  };

  frame.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    anchor = here = placeOf(event);
    frame.setPointerCapture(event.pointerId);
    show();
  });
  frame.addEventListener("pointermove", (event) => {
    here = placeOf(event);
    if (!event.buttons) anchor = null;
    show();
  });
  frame.addEventListener("pointerup", () => {
    if (anchor !== null && anchor !== here) zoomIn();
    anchor = null;
  });
  frame.addEventListener("dblclick", () => { anchor = null; zoomIn(); });
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const jump = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -places, End: places }[event.key];
    if (jump) {
      const before = here ?? (jump < 0 ? places : -1);
      anchor = event.shiftKey ? anchor ?? inside(before) : null;
      here = inside(before + jump);
      show();
      say(status.textContent);
    } else if (event.key === "Enter" && here !== null) zoomIn();
    else if (event.key === "-" || event.key === "Backspace") zoomOut();
    else if (event.key === "Escape") { anchor = null; show(); }
    else return;
    event.preventDefault();
  });
}
