// The cluster at a moment: a slider over time, the namespaces, kinds and objects of then, and what differs from now.

import { ago, choice, count, field, h, loading, s, say, timeText, write, zoneName } from "./dom.js";
import { ApiError, begin, density, number, revision as one, selector } from "./api.js";
import { NOISE, failed } from "./changes.js";
import { complete } from "./facets.js";
import { overview } from "./overview.js";
import { changedSince, following, newest, Past, TAG } from "./past.js";
import { sides } from "./sides.js";

const RANGES = [["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"], ["365d", "a year"]];
const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
const OUTSIDE = "_";
const STEPS = 1000;
const [WIDE, HIGH] = [960, 44];

export function cluster({ query, go, signal }) {
  const state = { at: "", ns: "default", kind: "", name: "", range: "", noise: "", ...Object.fromEntries(query) };
  const outside = state.ns === OUTSIDE;
  const namespace = outside ? "" : state.ns;
  const past = new Past(state.at, signal);
  const options = { noise: state.noise, clusterScoped: outside, signal };
  const moment = h("output.moment", {}, state.at ? "…" : "now");
  const strip = h("div.strip", { "aria-hidden": "true" });
  const [spaces, kinds, objects, panel] = ["Namespaces", "Kinds", "Objects", "State"].map((title) =>
    h(title === "State" ? "section.panel" : "section.list", { "aria-label": title, "aria-busy": "true" }, loading(6)));

  const values = (next) => Object.fromEntries(Object.entries({ ...state, ...next })
    .filter(([name, value]) => value && value !== { ns: "default" }[name]));
  const address = (next) => `#/cluster?${new URLSearchParams(values(next))}`;
  const move = (next) => go("cluster", values(next));

  const time = timeOf(state.at);
  const range = state.range || RANGES.find(([each]) => Date.now() - length(each) <= time)?.[0] || RANGES.at(-1)[0];
  let [from, to] = [Date.now() - length(state.range || (state.at && !Number.isNaN(time) ? range : "24h")), Date.now()];
  const slider = h("input", { type: "range", name: "slide", min: "0", max: String(STEPS), "aria-label": "Moment",
    oninput: () => slid(false), onchange: () => slid(true) });
  place(Number.isNaN(time) ? to : time);

  function place(then) {
    const part = Math.min(Math.max((then - from) / (to - from), 0), 1);
    slider.value = String(Math.round(part * STEPS));
    slider.setAttribute("aria-valuetext", part === 1 ? "now" : timeText(then));
  }

  function slid(settled) {
    const part = Number(slider.value) / STEPS;
    const then = new Date(from + part * (to - from)).toISOString();
    write(moment, part === 1 ? "now" : `${timeText(then)} ${zoneName()}, ${ago(then)}`);
    slider.setAttribute("aria-valuetext", moment.textContent);
    if (settled) move({ at: part === 1 ? "" : `${then.slice(0, 19)}Z` });
  }

  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    change();
  } },
  field("Moment", h("input", { name: "at", value: state.at, size: "24", placeholder: "now, 2h, a time, a revision, tag:…", "data-search": true,
    autocomplete: "off", spellcheck: "false" })),
  field("Slider over", choice("range", [["", "fit to changes"], ...RANGES], state.range)),
  h("label.check", {}, h("input", { type: "checkbox", name: "noise", checked: Boolean(state.noise), onchange: change }), "Events, leases, addresses"),
  h("button", { type: "submit" }, "Show"));
  form.querySelector("select").addEventListener("change", change);
  complete(form);

  function change() {
    const given = Object.fromEntries(new FormData(form));
    move({ ...given, at: given.at.trim() === "now" ? "" : given.at.trim(), noise: given.noise ? "1" : "" });
  }

  // -- the moment -------------------------------------------------------------------------------------------------

  /** Begin the slider with the changes of the last day, unless the visitor chose a range, or a moment before them. */
  async function fit() {
    const since = state.range ? NaN : await begin(namespace, "", state.noise ? "" : NOISE, signal).catch(() => NaN);
    if (Number.isNaN(since) || time < since) return;
    [from, to] = [since, Date.now()];
    place(Number.isNaN(time) ? to : time);
  }

  async function load() {
    await fit();
    drawStrip();
    try {
      const found = await then();
      await Promise.all([guarded(spaces, listNamespaces(found)), guarded(kinds, listKinds(found.revision)), showMoment(found.revision)]);
    } catch (error) {
      for (const section of [spaces, kinds, objects]) settle(section);
      failed(panel, error);
      panel.removeAttribute("aria-busy");
    }
  }

  /** Return the namespaces and the revision of the moment. Without the right to list namespaces, only the chosen one. */
  async function then() {
    try {
      return await past.namespaces(namespace);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403) throw error;
      const bound = /^\d+$/.test(state.at) ? { "revision.to": state.at } : { "time.to": state.at };
      const last = await newest(namespace, selector(bound), options);
      return { names: [namespace].filter(Boolean), more: false, revision: last ? number(last) : 0 };
    }
  }

  async function showMoment(revision) {
    const last = await newest(namespace, selector({ "revision.to": String(revision) }), options);
    const since = isNumbered(state.at) ? last?.time : state.at && new Date(Number.isNaN(time) ? to : time).toISOString();
    if (since && isNumbered(state.at)) place(Date.parse(since));
    write(moment, since ? `${timeText(since)} ${zoneName()}, ${ago(since)}, revision ${revision}` : `now, revision ${revision}`);
    before.disabled = !last;
    after.disabled = !state.at;
    before.onclick = () => move({ at: String(Math.max(number(last) - 1, 1)) });
    after.onclick = async () => {
      after.disabled = true;
      const next = await following(namespace, revision, state.noise, signal);
      move({ at: next ? next.metadata.name : "" });
    };
  }

  async function drawStrip() {
    try {
      const fields = selector({ "time.from": new Date(from).toISOString() }, state.noise ? "" : NOISE);
      const bucket = Math.max(1, Math.round((to - from) / 1000 / 160));
      const found = await density(outside ? "" : namespace, fields, { by: "operation", bucket: `${bucket}s` }, signal);
      const most = Math.max(1, ...found.buckets.map((each) => each.count));
      const step = (found.bucketSeconds * 1000 / (to - from)) * WIDE;
      strip.replaceChildren(s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none" }, ...found.buckets.map((each) => {
        const height = Math.max(2, Math.sqrt(each.count / most) * HIGH);
        return s("rect", { class: "series-0", x: ((Date.parse(each.time) - from) / (to - from)) * WIDE, y: HIGH - height, width: Math.max(1, step - 0.5), height });
      })));
    } catch {
      strip.replaceChildren();  // the slider works without it
    }
  }

  // -- the lists --------------------------------------------------------------------------------------------------

  async function guarded(section, work) {
    try {
      await work;
    } catch (error) {
      failed(section, error);
    }
    settle(section);
  }

  function settle(section) {
    section.querySelector(".loading")?.remove();
    section.removeAttribute("aria-busy");
  }

  async function listNamespaces({ names, more, revision }) {
    let changed = new Map();
    try {
      changed = byValue(await changedSince(revision, "namespace", "", "", { noise: state.noise, signal }), "namespace");
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403) throw error;
    }
    const entries = names.map((name) => entry(name, name, { ns: name, kind: state.kind, name: "" }, name === state.ns, changed.get(name)));
    if (!names.includes(namespace) && !outside) entries.unshift(h("li", {}, h("p.note", {}, `There was no namespace ${namespace}.`)));
    entries.unshift(entry("outside of namespaces", "outside of namespaces", { ns: OUTSIDE, kind: "", name: "" }, outside, changed.get("")));
    spaces.replaceChildren(h("h2.unseen", {}, "Namespaces"), h("ul", {}, entries), more ? h("p.note", {}, `Of more namespaces, ${names.length} are shown.`) : "");
    const chosen = spaces.querySelector("[aria-current]");
    (chosen?.parentNode ?? spaces).append(kinds);
    narrow();
    if (chosen) tree.scrollTop = Math.max(0, chosen.offsetTop - tree.clientHeight / 4);
  }

  async function listKinds(revision) {
    const [all, groups] = await Promise.all([past.kinds(revision, state.noise), changedSince(revision, "resource", namespace, "", options)]);
    const changed = byValue(groups, "resource");
    const here = all.filter((each) => each.namespaced !== outside);
    const counts = await past.counts(here, namespace);
    const shown = here.filter(({ resource }) => counts.get(resource) || changed.has(resource) || resource === state.kind);
    const denied = here.filter(({ resource }) => counts.get(resource) === null).length;
    kinds.replaceChildren(h("h2.unseen", {}, "Kinds"),
      shown.length ? h("ul", {}, shown.map(({ resource, kind }) => entry([kind, " ", h("small", {}, (counts.get(resource) ?? "").toLocaleString("en"))], resource,
        { kind: resource, name: "" }, resource === state.kind, changed.get(resource)))) : h("p.empty", {}, "There was nothing here."),
      denied ? h("p.note", {}, `You may not list ${count(denied, "kind")}.`) : "",
      groups ? "" : h("p.note", {}, "There are too many changes since then to mark all that differ."));
    kinds.querySelector("[aria-current]")?.parentNode.append(objects);
    narrow();
    say(`${count(shown.length, "kind")} in ${outside ? "the cluster, outside of namespaces" : namespace}`);
    const kind = all.find((each) => each.resource === state.kind);
    if (kind) await guarded(objects, listObjects(kind, revision));
    await guarded(panel, kind && state.name ? showObject(kind, revision) : showOverview(revision));
  }

  async function showOverview(revision) {
    const link = ({ resource, name }) => address({ kind: resource, name });
    panel.replaceChildren(...await overview({ namespace, outside, revision, past: Boolean(state.at), noise: state.noise, address: link, signal }));
  }

  // The tree shows names that contain the text of the filter, and with "Differences", those that differ; what is chosen stays.
  function narrow() {
    const [text, only] = [filter.value.trim().toLowerCase(), differences.checked];
    for (const each of tree.querySelectorAll("li")) {
      const link = each.querySelector(":scope > a");
      if (!link) continue;
      const chosen = link.hasAttribute("aria-current");
      each.hidden = !chosen && ((Boolean(text) && !link.dataset.name.toLowerCase().includes(text)) || (only && !link.querySelector(".since")));
    }
  }

  async function listObjects(kind, revision) {
    const [held, present, groups] = await Promise.all([past.objects(kind, namespace), new Past("", signal).objects(kind, namespace),
      changedSince(revision, "name", namespace, { "object.resource": kind.resource }, options)]);
    const changed = byValue(groups, "name");
    // Of lists that go on, only names up to the end of the shorter one can be compared.
    const end = [held, present].filter((each) => each.token).map((each) => each.names.at(-1)).sort()[0];
    const sure = (name) => end === undefined || name <= end;
    const [was, is] = [new Set(held.names), new Set(present.names)];
    const names = [...new Set([...held.names, ...present.names])].filter((name) => was.has(name) || sure(name)).sort();
    const mark = (name) => (!was.has(name) ? "not yet there" : !is.has(name) && sure(name) ? "gone now" : changed.has(name) ? "differs from now" : "");
    objects.replaceChildren(h("h2.unseen", {}, `${kind.kind}, ${count(held.names.length + held.left, "object")}`),
      names.length ? h("ul", {}, names.map((name) => entry(name, name, { name }, name === state.name, changed.get(name), mark(name)))) : h("p.empty", {}, "There were none."),
      held.token ? h("p.note", {}, `The first ${held.names.length} are shown.`) : "");
    narrow();
  }

  // An entry of a list, with the number of changes since the moment. ``mark``: the difference from now.
  function entry(shown, name, next, chosen, since, mark) {
    const label = mark ?? (since ? `${count(since.changes, "change")} since then` : "");
    const badge = label && state.at && h(`small.since${mark ? `.${mark.split(" ")[0]}` : ""}`, { title: since ? `${count(since.changes, "change")} since then` : label },
      mark || `${since.changes.toLocaleString("en")} ±`);
    return h(`li${mark === "not yet there" ? ".absent" : ""}`, {},
      h("a", { href: address(next), "aria-current": chosen ? "true" : null, "data-name": name }, h("span", {}, shown), badge));
  }

  // -- one object -------------------------------------------------------------------------------------------------

  async function showObject(kind, revision) {
    const fields = { "object.resource": kind.resource, "object.name": state.name };
    const [last, present] = await Promise.all([newest(namespace, selector(fields, { "revision.to": String(revision) }), { clusterScoped: !namespace, signal }),
      newest(namespace, selector(fields), { clusterScoped: !namespace, signal })]);
    const [held, now] = await Promise.all([last, present].map((each) => each && one(namespace, each.metadata.name, signal)));
    const history = h("p", {}, h("a", { href: `#/object/${[namespace || OUTSIDE, kind.resource, state.name].map(encodeURIComponent).join("/")}${last ? `?rev=${last.metadata.name}` : ""}` },
      "Its history"), held?.object && kind.resource === "secrets" ? " Values are masked; show them there." : "");
    if (held?.redacted || now?.redacted) return void panel.replaceChildren(history, h("p.note", {}, `You may not read it. Missing: get on ${kind.resource}.`));
    const [before, after] = [await stateOf(held, kind), now?.operation === "Delete" ? null : now?.after ?? null];
    const title = (each, prefix) => (each ? `${prefix}: revision ${each.metadata.name}, ${timeText(each.time)}` : prefix);
    const equal = last && present && last.metadata.name === present.metadata.name;
    panel.replaceChildren(history, h("p", {}, !before ? "It did not exist then." : equal ? "It has not changed since." : !after ? "It does not exist now." : ""),
      sides(before, after, title(held, before ? "then" : "not there then"), title(now, after ? "now" : now ? "deleted" : "not there now"), { all: true }));
    say(state.name);
  }

  // The last change up to the moment may be older than history; the object itself is still kept, but for masked Secrets.
  async function stateOf(held, kind) {
    if (held) return held.operation === "Delete" ? null : held.after ?? null;
    if (kind.resource === "secrets") return null;
    return past.object(kind, namespace, state.name);
  }

  const filter = h("input", { name: "filter", type: "search", "aria-label": "Filter the tree by name", placeholder: "Filter", autocomplete: "off", spellcheck: "false", oninput: narrow });
  const differences = h("input", { type: "checkbox", name: "differences", disabled: !state.at, onchange: narrow });
  const tree = h("div.tree", {}, spaces, kinds);
  const before = h("button", { type: "button", disabled: true }, "◀ Change before");
  const after = h("button", { type: "button", disabled: true }, "Change after ▶");
  const present = h("button", { type: "button", disabled: !state.at, onclick: () => move({ at: "" }) }, "Now");
  load();
  const element = h("div.page", {}, h("h1", {}, "Cluster"), form,
    h("section.slider", { "aria-label": "Time" }, strip, slider, h("div.below", {}, moment, h("span.zoom", {}, before, after, present))),
    h("div.cluster", {}, h("div.side", {}, h("div.narrowing", {}, filter, h("label.check", { title: state.at ? null : "At a moment of the past" }, differences, "Differences")), tree), panel));
  const keys = (key) => {
    const button = { "[": before, "]": after }[key];
    if (!button || button.disabled) return false;
    button.click();
    return true;
  };
  return { title: state.at ? `Cluster at ${state.at}` : "Cluster", element, keys };
}

const length = (range) => parseInt(range, 10) * UNITS[range.at(-1)] * 1000;

/** Tell whether a moment is a revision, or a tag of one: its time is that of its last change. */
const isNumbered = (at) => /^\d+$/.test(at) || at.startsWith(TAG);

/** Return the time of a moment as the page understands it; NaN for the others, and for revisions. "": now. */
function timeOf(at) {
  if (!at) return Date.now();
  if (isNumbered(at)) return NaN;
  return /^\d+[smhdw]$/.test(at) ? Date.now() - length(at) : Date.parse(at);
}

function byValue(groups, by) {
  return new Map((groups ?? []).map((each) => [each[by], each]));
}
