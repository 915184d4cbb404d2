// Lanes: many objects over time, a lane for each object, namespace, kind or user; states as colours; and beside them the
// cluster at the cursor. Wheel, drag and keys move and zoom.

import { choice, count, field, h, loading, say, timeText, write, zoneName } from "./dom.js";
import { selector } from "./api.js";
import { failed, NOISE } from "./changes.js";
import { complete } from "./facets.js";
import { LANE, AXIS, LaneCanvas } from "./lane-canvas.js";
import { LaneData, MOST, readLanes } from "./lane-data.js";
import { shortUser } from "./words.js";

const BYS = [["object", "object"], ["namespace", "namespace"], ["kind", "kind"], ["user", "user"]];
const RANGES = [["", "all that fit"], ["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"], ["7d", "7 days"]];
const STATES = [["ready", "ready"], ["waiting", "not ready"], ["crash", "crashes"], ["failed", "failed"], ["zero", "scaled to 0"], ["ending", "being deleted"], ["done", "completed"], ["exists", "exists"]];
const WORRIES = ["crash", "failed", "waiting", "ending"];
const SHOWN = 12; // objects of one state in the panel
const CALM = 120; // milliseconds until the panel follows the cursor
const SHORTEST = 50; // milliseconds in view

export function lanes({ query, go, signal }) {
  const state = { by: "object", ns: "", q: "", range: "", from: "", to: "", at: "", ...Object.fromEntries(query) };
  const canvas = h("canvas.lanes-canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": "Lanes", "aria-describedby": "lanes-help" });
  const space = h("div.lanes-space", {}, canvas);
  const scroll = h("div.lanes-scroll", {}, space);
  const panel = h("aside.then", { "aria-label": "The cluster at the cursor" }, loading(4));
  const status = h("p.faint", { role: "status" }, "Reading …");
  const legend = h("p.lanes-legend", { "aria-label": "States" }, STATES.map(([name, text]) => h("span", {}, h(`i.state-${name}`), text)),
    [["create", "created"], ["update", "changed"], ["delete", "deleted"]].map(([name, text]) => h("span", {}, h(`i.tick.op-${name}`), text)));
  const form = h("form.filters", { onsubmit: (event) => { event.preventDefault(); change(); } },
    field("A lane for each", choice("by", BYS, state.by)), field("Last", choice("range", RANGES, state.range)),
    field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", "data-search": true, autocomplete: "off", spellcheck: "false" })),
    field("Selector", h("input", { name: "q", value: state.q, size: "34", placeholder: "object.kind=Pod,object.name=web*", autocomplete: "off", spellcheck: "false" })),
    h("button", { type: "submit" }, "Show"));
  complete(form);
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", change);

  function change() {
    const values = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
    go("lanes", Object.fromEntries(Object.entries(values).filter(([name, value]) => value && !(name === "by" && value === "object"))));
  }

  const data = new LaneData();
  const picture = new LaneCanvas(canvas, data, {});
  picture.density = state.by !== "object";
  const shown = new Shown({ state, data, picture, scroll, space, panel, canvas, go, signal });

  async function load() {
    const fields = selector(state.q, NOISE, { "time.from": state.range });
    try {
      await readLanes(data, state.ns, fields, signal, () => {
        write(status, `${count(data.length, "change")} of ${count(data.objects.length, "object")}${data.truncated ? `; reading more, at most ${MOST.toLocaleString("en")}` : ""}`);
        shown.refresh();
      });
      write(status, data.length ? `${count(data.length, "change")} of ${count(data.objects.length, "object")}${data.truncated ? ", the newest" : ""}.` : "There are no changes in this time that match.");
      shown.settle();
      say(status.textContent);
    } catch (error) {
      failed(panel, error);
      status.remove();
    }
    element.removeAttribute("aria-busy");
  }

  const element = h("div.page", { "aria-busy": "true" }, h("h1", {}, "Lanes"), form, legend,
    h("p.faint", { id: "lanes-help" }, "The wheel zooms, a drag moves. With the keyboard: arrows move the cursor and choose a lane, with Shift they move the view, + and − zoom, [ and ] go to the change before and after, Enter opens."),
    status, h("div.lanes-view", {}, scroll, panel));
  queueMicrotask(() => shown.begin());
  load();
  return { title: "Lanes", element };
}

/** What is in view, and how pointer and keys change it. */
class Shown {
  constructor(parts) {
    Object.assign(this, parts);
    this.fixed = Boolean(this.state.from && this.state.to);
  }

  begin() {
    const { canvas, scroll, picture, state } = this;
    if (this.fixed) [picture.from, picture.to] = [Date.parse(state.from), Date.parse(state.to)];
    if (state.at) picture.cursor = Date.parse(state.at);
    const watcher = new ResizeObserver(() => {
      picture.resize();
      this.colours();
      picture.request();
    });
    watcher.observe(scroll);
    const themes = new MutationObserver(() => { this.colours(); picture.request(); });
    themes.observe(document.documentElement, { attributes: true });
    this.signal.addEventListener("abort", () => { watcher.disconnect(); themes.disconnect(); });
    scroll.addEventListener("scroll", () => { picture.top = scroll.scrollTop; picture.request(); });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("dblclick", () => this.#open());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    this.refresh();
  }

  /** Read the colours of the theme from the legend. */
  colours() {
    const of = (selectors) => getComputedStyle(document.querySelector(selectors));
    if (!document.querySelector(".lanes-legend")) return;
    const body = of("body");
    const item = of(".lanes-legend .op-update");
    this.picture.colours = {
      text: body.color, ground: body.backgroundColor, faint: of(".lanes-legend").color, line: item.borderTopColor, raised: item.outlineColor, chosen: of(".lanes-legend .op-create").outlineColor,
      link: of(".lanes-legend .op-delete").outlineColor, states: Object.fromEntries(STATES.map(([name]) => [name, of(`.lanes-legend .state-${name}`).backgroundColor])),
      operations: ["", "create", "update", "delete"].map((name) => name && of(`.lanes-legend .op-${name}`).backgroundColor),
    };
  }

  refresh() {
    const { picture, data, state, space, canvas } = this;
    if (!canvas.isConnected) return;
    picture.lanes = data.lanes(state.by);
    space.style.height = `${Math.max(AXIS + picture.lanes.length * LANE, 200)}px`;
    if (!this.fixed) {
      const [from, to] = data.span();
      const margin = Math.max((to - from) * 0.02, 500);
      [picture.from, picture.to] = [from - margin, to + margin];
      if (!state.at) picture.cursor = to;
    }
    if (Number.isNaN(picture.cursor)) picture.cursor = picture.to;
    if (!picture.width) picture.resize();
    if (!picture.colours.text) this.colours();
    picture.request();
  }

  settle() {
    this.#tell();
  }

  #wheel(event) {
    event.preventDefault();
    if (event.shiftKey) this.scroll.scrollTop += event.deltaY || event.deltaX;
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.#move(event.deltaX / 1000);
    else this.#zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.picture.time(Math.max(event.offsetX, this.picture.names)));
  }

  /** Zoom by a factor around a time. */
  #zoom(factor, around) {
    const { picture } = this;
    const [from, to] = [around - (around - picture.from) * factor, around + (picture.to - around) * factor];
    if (to - from < SHORTEST || to - from > 20 * 365 * 86400e3) return;
    this.#view(from, to);
  }

  #move(part) {
    const by = (this.picture.to - this.picture.from) * part;
    this.#view(this.picture.from + by, this.picture.to + by);
  }

  #view(from, to) {
    this.fixed = true;
    [this.picture.from, this.picture.to] = [from, to];
    this.picture.request();
    this.#keep();
  }

  #press(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, y: event.offsetY, from: this.picture.from, to: this.picture.to, top: this.scroll.scrollTop, moved: false };
  }

  #hover(event) {
    const { drag, picture, scroll } = this;
    if (!drag) return;
    const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    const by = (dx / (picture.width - picture.names)) * (drag.to - drag.from);
    scroll.scrollTop = drag.top - dy;
    this.#view(drag.from - by, drag.to - by);
  }

  #release(event) {
    if (this.drag && !this.drag.moved) {
      this.picture.chosen = this.picture.lane(event.offsetY);
      if (event.offsetX > this.picture.names) this.picture.cursor = this.picture.time(event.offsetX);
      this.#cursorMoved();
    }
    this.drag = null;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { picture } = this;
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const lane = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (aside && event.shiftKey) this.#move(aside * 0.2);
    else if (aside) this.#at(picture.cursor + aside * (picture.to - picture.from) * 0.02);
    else if (lane) this.#choose(picture.chosen + lane);
    else if (event.key === "Home") this.#at(this.data.from);
    else if (event.key === "End") this.#at(this.data.to);
    else if (event.key === "+" || event.key === "=") this.#zoom(0.7, picture.cursor);
    else if (event.key === "-") this.#zoom(1 / 0.7, picture.cursor);
    else if (event.key === "[" || event.key === "]") this.#step(event.key === "]");
    else if (event.key === "Enter") this.#open();
    else return;
    event.preventDefault();
  }

  #choose(place) {
    const { picture, scroll } = this;
    picture.chosen = Math.max(0, Math.min(place, picture.lanes.length - 1));
    const y = picture.chosen * LANE;
    if (y < scroll.scrollTop) scroll.scrollTop = y;
    else if (y + LANE + AXIS > scroll.scrollTop + picture.height) scroll.scrollTop = y + LANE + AXIS - picture.height;
    this.#cursorMoved();
  }

  #at(time) {
    const { picture } = this;
    picture.cursor = time;
    const span = picture.to - picture.from;
    if (time < picture.from || time > picture.to) this.#view(time - span / 2, time + span / 2);
    this.#cursorMoved();
  }

  /** Go to the change before or after the cursor: of the chosen lane, or else of any. */
  #step(forward) {
    const { picture, data } = this;
    const lane = picture.lanes[picture.chosen];
    const rows = lane?.rows ?? Uint32Array.from({ length: data.length }, (_, place) => data.length - 1 - place);
    const next = forward ? data.after(rows, picture.cursor) : data.after(rows, picture.cursor - 0.5) - 1;
    if (next >= 0 && next < rows.length) this.#at(data.times[rows[next]]);
  }

  #cursorMoved() {
    this.picture.request();
    this.#keep();
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.#tell(), CALM);
  }

  /** Keep the view in the address, which can be sent to others, without drawing the page again. */
  #keep() {
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      if (this.signal.aborted) return;
      const { picture, state } = this;
      const written = (time) => new Date(time).toISOString();
      const values = { ...state, ...(this.fixed ? { from: written(picture.from), to: written(picture.to) } : {}), at: written(picture.cursor) };
      const address = `#/lanes?${new URLSearchParams(Object.entries(values).filter(([name, value]) => value && !(name === "by" && value === "object")))}`;
      history.replaceState(null, "", address);
      document.getElementById("main").dataset.address = address;
    }, CALM);
  }

  #last(rows) {
    const place = this.data.after(rows, this.picture.cursor) - 1;
    return place < 0 ? -1 : rows[place];
  }

  #open() {
    const { picture, data, state, go } = this;
    const lane = picture.lanes[picture.chosen];
    if (!lane) return;
    const at = this.#last(lane.rows);
    if (state.by === "object") {
      const [resource, namespace, name] = data.objects[lane.key];
      go(["object", namespace || "_", resource, name], at < 0 ? {} : { rev: String(data.revisions[at]) });
    } else go("lanes", { ...(state.by === "namespace" ? { ns: lane.key } : { q: selector({ [state.by === "user" ? "who.username" : "object.resource"]: lane.key }) }) });
  }

  /** The panel: the chosen lane and the objects of the lanes at the cursor, the worrying ones by name. */
  #tell() {
    const { picture, data, panel } = this;
    if (this.signal.aborted || !data.length) return void panel.replaceChildren(h("p.empty", {}, "There are no changes in this time that match."));
    const states = new Map();
    let newest = -1;
    for (const { key, rows } of this.#objectLanes()) {
      const at = this.#last(rows);
      if (at < 0) continue;
      if (newest < 0 || data.revisions[at] > data.revisions[newest]) newest = at;
      const name = data.stateNames[data.state[at]];
      if (name !== "gone") states.set(name, [...states.get(name) ?? [], [key, at]]);
    }
    const time = new Date(picture.cursor).toISOString();
    const revision = newest < 0 ? "" : String(data.revisions[newest]);
    const lane = picture.lanes[picture.chosen];
    panel.replaceChildren(
      h("h2", {}, `${timeText(picture.cursor)} ${zoneName()}`),
      h("p", {}, revision && h("a", { href: `#/cluster?at=${revision}${this.state.ns ? `&ns=${encodeURIComponent(this.state.ns)}` : ""}` }, "The cluster then"), revision && " · ", h("a", { href: `#/incident?${new URLSearchParams({ at: time, ...(this.state.ns ? { ns: this.state.ns } : {}) })}` }, "What happened before")),
      lane ? h("div", {}, this.#lane(lane)) : "",
      h("h3", {}, "Objects that changed in this time"),
      states.size ? h("ul.states", {}, STATES.filter(([name]) => states.has(name)).map(([name, text]) => h("li", {}, h(`i.state-${name}`), `${states.get(name).length.toLocaleString("en")} ${name === "exists" ? "without a state" : text}`,
        WORRIES.includes(name) && h("ul", {}, states.get(name).slice(0, SHOWN).map(([key, at]) => h("li", {}, this.#link(key, at)))),
        WORRIES.includes(name) && states.get(name).length > SHOWN && h("p.faint", {}, `and ${count(states.get(name).length - SHOWN, "other")}`)))) : h("p.faint", {}, "None existed yet."));
    if (document.activeElement === this.canvas) say(`${timeText(picture.cursor)}${lane ? `, ${lane.name}, ${this.#stateOf(lane)}` : ""}`);
  }

  #objectLanes() {
    if (this.state.by === "object") return this.picture.lanes;
    if (this.counted !== this.data.length) [this.counted, this.all] = [this.data.length, this.data.lanes("object")];
    return this.all;
  }

  #stateOf(lane) {
    const at = this.#last(lane.rows);
    return at < 0 ? "not there yet" : this.data.stateNames[this.data.state[at]];
  }

  #lane(lane) {
    const { data, state } = this;
    const at = this.#last(lane.rows);
    const open = state.by === "object" && this.#link(lane.key, at);
    const title = h("h3", {}, open || lane.name);
    if (at < 0) return [title, h("p.faint", {}, "It was not there yet, or had not changed.")];
    const operation = ["", "created", "changed", "deleted"][data.operation[at]];
    return [title, state.by === "object" ? h("p", {}, h(`i.state-${data.stateNames[data.state[at]]}`), this.#stateOf(lane)) : "",
      h("p.faint", {}, `${operation} ${timeText(data.times[at])} by ${shortUser(data.users[data.user[at]])}, revision ${data.revisions[at]}`),
      state.by === "object" ? h("p", {}, h("a", { href: `${this.#address(lane.key, at)}&tab=why` }, "Why")) : h("p", {}, h("button", { type: "button", onclick: () => this.#open() }, "Its objects"))];
  }

  #address(key, at) {
    const [resource, namespace, name] = this.data.objects[key];
    return `#/object/${[namespace || "_", resource, name].map(encodeURIComponent).join("/")}?${at < 0 ? "" : `rev=${this.data.revisions[at]}`}`;
  }

  #link(key, at) {
    const [resource, namespace, name] = this.data.objects[key];
    return h("a", { href: this.#address(key, at) }, h("span.faint", {}, `${namespace ? `${namespace} ` : ""}${resource.split(".")[0]}/`), name);
  }
}
