// One object: its revisions, any two of them side by side, and the last author of each field.

import { ago, count, h, loading, say, timeText, when } from "./dom.js";
import { Changes, deletionMark, revision as one, scopes } from "./api.js";
import { because, failed, link, operation, searched, summary, user } from "./changes.js";
import { around } from "./around.js";
import { authorOf, Blame } from "./blame.js";
import { behind, originsOf } from "./origins.js";
import { bringBack, maker, restoreOf, stateAt, undoing } from "./restore.js";
import { readers } from "./readers.js";
import { scrubber } from "./scrub.js";
import { sides } from "./sides.js";
import { tree } from "./tree.js";
import { why } from "./why.js";
import { isController, shortUser, userName } from "./words.js";
import { trimmed, yamlLines } from "./yaml.js";

const PAGE = 100;
const TABS = [["diff", "Compare"], ["why", "Why"], ["blame", "Blame"], ["tree", "Tree"], ["readers", "Readers"]];

export function object({ path, query, go, signal }) {
  const [where, resource, name] = path;
  const namespace = where === "_" ? "" : where;
  const state = Object.fromEntries(query);
  const tab = TABS.some(([each]) => each === state.tab) ? state.tab : "diff";
  const wide = ["why", "tree", "readers"].includes(tab);
  const list = h("section.revisions", { "aria-label": "Revisions", hidden: wide }, loading(6));
  const near = h("aside.around", { "aria-label": "Around it", hidden: wide });
  const about = h("p.about", {});
  const panel = h("section.panel", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${tab}` }, loading(14));
  const subject = { "object.resource": resource, "object.name": name };
  const places = scopes(namespace, { clusterScoped: !namespace }).slice(0, 1);
  let known = [];
  let values = ""; // "shown" once the visitor asks for the values of a Secret

  const move = (values) => go(["object", ...path], Object.fromEntries(Object.entries({ ...state, ...values }).filter(([, value]) => value)));
  const tabs = h("div.tabs", { role: "tablist", "aria-label": "Views" }, TABS.map(([each, text]) =>
    h("button", { type: "button", role: "tab", id: `tab-${each}`, "aria-selected": String(each === tab), "aria-controls": "panel",
      tabindex: each === tab ? "0" : "-1", onclick: () => move({ tab: each === "diff" ? "" : each }) }, text)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: TABS.length - 1, ArrowRight: 1 }[event.key];
    const next = step && TABS[(TABS.findIndex(([each]) => each === tab) + step) % TABS.length][0];
    if (next) move({ tab: next === "diff" ? "" : next });
  });

  async function load() {
    const changes = new Changes(places, subject, { signal, page: PAGE });
    try {
      known = await changes.next(PAGE);
      while (state.rev && !changes.ended && !known.some((each) => each.metadata.name === state.rev)
        && known.length < 20 * PAGE) known.push(...await changes.next(PAGE));
    } catch (error) {
      failed(list, error);
      panel.replaceChildren();
      return;
    }
    if (!known.length) {
      list.replaceChildren();
      panel.replaceChildren(h("p.empty", {}, "Nothing is known of this object: it never was, or its history is not kept any more."),
        await searched(places, subject, signal));
      return;
    }
    const to = known.find((each) => each.metadata.name === state.rev) ?? known[0];
    const from = state.from ?? "";
    about.replaceChildren(...aboutIt());
    show(changes, to, from);
    if (!wide) surround();
    await draw(to, from);
  }

  async function surround() {
    try {
      near.replaceChildren(...await around(namespace, resource, name, known[0], signal));
    } catch (error) {
      failed(near, error);
    }
  }

  // What is known of the object at a glance.
  function aboutIt() {
    const [last, first] = [known[0], known.at(-1)];
    const gone = last.operation === "Delete";
    const person = known.find((each) => !isController(each.who.username ?? ""));
    return [h(`span.chip${gone ? ".bad" : ".good"}`, {}, gone ? "deleted" : "exists"), " ",
      first.operation === "Create" ? ["created ", when(first.time), " by ", userName(first.who), " · "] : "",
      "last changed ", ago(last.time), " by ", userName(last.who), person && person !== last && !gone ? [" · last by a person: ", h("a", { href: link(person) }, ago(person.time)), " by ", userName(person.who)] : ""].flat(Infinity).filter(Boolean);
  }

  async function draw(to, from) {
    await ({ blame: blamed, why: explained, readers: readBy, tree: grown }[tab] ?? compared)(to, from);
    if (resource === "secrets" && (tab === "diff" || tab === "blame")) panel.prepend(masked(to, from));
  }

  // Values of a Secret stay masked until the visitor asks for them. The server records that.
  function masked(to, from) {
    if (values) return h("p.note", {}, "The values are shown. The server has recorded that.");
    return h("p.note", {}, "Values are masked: equal ones have equal masks. ", h("button", { type: "button", onclick: () => {
      values = "shown";
      draw(to, from);
    } }, "Show the values (recorded)"));
  }

  function show(changes, to, from) {
    const table = h("table", {}, h("thead", {}, h("tr", {}, ["From", "To", "Revision"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, known.map((each) => entry(each, to, from))));
    const more = changes.ended ? null : h("button", { type: "button", onclick: async (event) => {
      event.target.disabled = true;
      known.push(...await changes.next(PAGE));
      show(changes, to, from);
    } }, "Older revisions");
    list.replaceChildren(h("h2", {}, changes.ended ? count(known.length, "revision") : `The newest ${known.length} revisions`), h("div.scroll", {}, table), more ?? "");
  }

  function entry(each, to, from) {
    const number = each.metadata.name;
    const compared = from ? from === number : to.previousRevision === number && to.operation !== "Create";
    const radio = (group, checked, values) => h("input", { type: "radio", name: group, value: number, checked, disabled: each.redacted || each.erased,
      "aria-label": `Compare ${group} revision ${number}`, onchange: () => move(values) });
    return h(`tr${each === to ? ".chosen" : ""}`, {},
      h("td", {}, radio("from", compared, { from: number })),
      h("td", {}, radio("to", each === to, { rev: number, from: from === number ? "" : from })),
      h("td", {}, h("div.head", {}, h("a", { href: "#", "data-rev": number, onclick: (event) => { event.preventDefault(); move({ rev: number, from: "" }); } }, number), " ", operation(each), " ", when(each.time)),
        h("div", {}, user(each), each.who.fieldManager && h("small.faint", {}, ` with ${each.who.fieldManager}`)), h("div", {}, summary(each)), because(each)));
  }

  async function compared(to, from) {
    try {
      const asked = [one(namespace, to.metadata.name, signal, values), from ? one(namespace, from, signal, values) : null];
      const [now, then] = await Promise.all(asked);
      const hidden = now.redacted || then?.redacted ? redacted(now)
        : now.erased || then?.erased || (now.beforeErased && !then) ? erased() : null;
      const before = then ? then.after ?? null : now.before ?? null;
      const after = now.after ?? null;
      const fromTitle = then ? title(then) : now.operation === "Create" ? "before it was created" : `before: revision ${now.previousRevision}`;
      const gone = to === known[0] && to.operation === "Delete" && !now.erased;
      const [mark, origins] = gone ? await Promise.all([deletionMark(now, signal), originsOf([to], signal)]) : [];
      const origin = origins?.get(to.metadata.name);
      const made = maker(after ?? before);
      const earlier = to !== known[0] && after && !hidden;
      const back = gone ? h("div.back", {}, h("p", {}, "Deleted by ", behind(to, origin), ". Bring it back:"), restoreOf(to, { origin, mark }))
        : earlier && made ? h("p.back.faint", {}, `${made} makes it: restore that instead`)
        : earlier ? h("details.back", {}, h("summary", {}, "Restore this state"), bringBack(stateAt(to))) : "";
      const undo = now.operation === "Update" && !hidden && !made && resource !== "secrets" && now.changed?.length ? h("details.back", {}, h("summary", {}, "Undo this change alone"), bringBack(undoing(to))) : "";
      const compared = hidden ?? sides(before, after, fromTitle, title(now), { authors: after && to === known[0] ? authors : null });
      panel.replaceChildren(known.length > 1 ? scrubber(known, from || to.metadata.name, slid, settled) : "", facts(now), back, undo, compared);
      say(`Revision ${now.metadata.name}`);
    } catch (error) {
      failed(panel, error);
    }
  }

  // While the handle moves, the newest state and the one at the handle are side by side; the address follows when it is let go.
  const states = new Map();
  const stateOf = (each) => {
    const name = each.metadata.name;
    if (!states.has(name)) states.set(name, one(namespace, name, signal, values));
    return states.get(name);
  };
  let wanted = null;

  async function slid(each) {
    wanted = each;
    try {
      const [then, now] = await Promise.all([stateOf(each), stateOf(known[0])]);
      if (wanted !== each) return; // the handle has moved on
      const shown = then.redacted || now.redacted || then.erased || now.erased ? redacted(then) : sides(then.after ?? null, now.after ?? null, title(then), title(now));
      panel.querySelector(".sides, .note:last-child")?.replaceWith(shown);
    } catch (error) {
      if (error.name !== "AbortError") failed(panel, error);
    }
  }

  const settled = (each) => move(each === known[0] ? { rev: "", from: "" } : { rev: known[0].metadata.name, from: each.metadata.name });

  // The author of each line of the newest state, from all changes of the object.
  async function authors() {
    const { held } = await blameOf({});
    return {
      at: (line) => authorOf(held.tree, line),
      label: (by) => [h("a", { href: `#/object/${path.map(encodeURIComponent).join("/")}?rev=${by.metadata.name}` }, by.metadata.name), " ", shortUser(by.who.username ?? ""), " ", h("span.faint", {}, ago(by.time))],
    };
  }

  const title = (each) => `revision ${each.metadata.name}, ${timeText(each.time)}${each.operation === "Delete" ? " (deleted)" : ""}`;

  /** Return {held, deleted, taken, hidden}: the blame of the object up to a revision. Oldest first, so that each page can be dropped after use. */
  async function blameOf(bounds) {
    const changes = new Changes(places, { ...subject, ...bounds }, { content: "full", signal, page: PAGE, order: "oldest", values });
    const held = new Blame();
    let deleted = null;
    let taken = 0;
    while (!changes.ended) {
      for (const each of await changes.next(PAGE)) {
        if (each.redacted) return { held, hidden: true };
        if (!taken && each.before) held.next(trimmed(each.before), null);
        if (deleted || each.erased) held.next(null, null);
        deleted = each.operation === "Delete" ? each : null;
        if (!deleted && !each.erased) held.next(trimmed(each.after), each.beforeErased ? null : each);
        taken += 1;
      }
      if (!changes.ended && tab === "blame") progress(taken);
    }
    return { held, deleted, taken };
  }

  async function blamed(to) {
    try {
      const { held, deleted, taken, hidden } = await blameOf({ "revision.to": to.metadata.name });
      if (hidden) return void panel.replaceChildren(facts(to), redacted(to));
      panel.replaceChildren(deleted ? h("p.note", {}, "The object was deleted at this revision; this is its last state.") : "",
        held.object ? blamedLines(held.object, held.tree) : h("p.empty", {}, "There was no object."));
      say(`Blame of ${count(taken, "revision")}`);
    } catch (error) {
      failed(panel, error);
    }
  }

  async function grown(to) {
    try {
      const show = (range) => move({ range: range === "1h" ? "" : range });
      panel.replaceChildren(...(await tree(namespace, resource, name, to, state.range ?? "1h", show, signal)).flat(Infinity).filter(Boolean));
      say("Tree");
    } catch (error) {
      failed(panel, error);
    }
  }

  async function explained(to) {
    try {
      const last = state.rev ? to : known.find((each) => each.operation !== "Update" || each.redacted || (each.changed ?? []).some((field) => !field.startsWith("status"))) ?? to;
      panel.replaceChildren(...(await why(namespace, resource, name, last, signal)).flat(Infinity).filter(Boolean));
      say("Why");
    } catch (error) {
      failed(panel, error);
    }
  }

  async function readBy() {
    try {
      panel.replaceChildren(...(await readers(namespace, resource, name, signal)).flat(Infinity).filter(Boolean));
      say("Readers");
    } catch (error) {
      failed(panel, error);
    }
  }

  function progress(taken) {
    panel.replaceChildren(h("p.note", { role: "status" }, `${count(taken, "revision")} read; there are more …`), loading(14));
  }

  function blamedLines(last, tree) {
    let shown;
    const lines = yamlLines(last).map(({ text, path: fieldPath }) => {
      const by = authorOf(tree, fieldPath);
      const same = by === shown;
      shown = by;
      const who = same ? "" : by ? [h("a", { href: "#", title: `${by.request?.verb ?? ""} with ${by.who.userAgent ?? "an unknown program"}`,
        onclick: (event) => { event.preventDefault(); move({ rev: by.metadata.name, tab: "", from: "" }); } }, by.metadata.name), " ",
        h("span.by", {}, by.who.username ?? "unknown"), " ", h("span.faint", {}, timeText(by.time, { seconds: false }))] : h("span.faint", {}, "earlier than is shown");
      return h(`tr${same ? "" : ".first"}`, {}, h("td.who", {}, who), h("td", {}, h("code", {}, text)));
    });
    return h("table.blame", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Last set by"), h("th", { scope: "col" }, "Field"))), h("tbody", {}, lines));
  }

  // Links to the namespace and the kind: the cluster as of the chosen revision.
  function crumbs() {
    const place = { ns: namespace || "_", ...(state.rev ? { at: state.rev } : {}) };
    const crumb = (text, more) => [h("a", { href: `#/cluster?${new URLSearchParams({ ...place, ...more })}` }, text), " / "];
    return [namespace && crumb(namespace, {}), crumb(resource, { kind: resource })];
  }

  load();
  const element = h("div.page", {},
    h("h1", {}, h("small", {}, crumbs()), name), about, tabs, h(`div.columns${wide ? ".whole" : ""}`, {}, h("div.beside", { hidden: wide }, list, near), panel));
  const steps = { "[": 1, "]": -1 };
  const keys = (key) => {
    if (!(key in steps) || !known.length) return false;
    const place = known.findIndex((each) => each.metadata.name === (state.rev ?? known[0].metadata.name)) + steps[key];
    if (known[place]) move({ rev: known[place].metadata.name, from: "" });
    return true;
  };
  return { title: `${resource}/${name}`, element, keys };
}

function redacted(revision) {
  return h("div.note", {}, h("h2", {}, "Redacted"), h("p", {},
    `You may see that this object changed, when and by whom, but not what it was. Missing: get on ${revision.object.resource}`
    + (revision.object.namespace ? ` in namespace ${revision.object.namespace}.` : ".")));
}

function erased() {
  return h("div.note", {}, h("h2", {}, "Erased"), h("p", {}, "The object is erased from history. The change, its time and its author are not."));
}

function facts(revision) {
  const { who, request } = revision;
  const fields = [["User", who.username], ["impersonated by", who.impersonator], ["groups", who.groups?.join(", ")],
    ["field manager", who.fieldManager], ["program", who.userAgent], ["address", who.sourceAddress],
    ["request", request && `${request.verb ?? ""} ${request.uri ?? ""}`], ["audit id", request?.auditID], ["reason", revision.reason], ["cause", revision.cause],
    ["database", revision.database]];
  const before = `#/incident?${new URLSearchParams({ at: revision.time, ...(revision.object.namespace ? { ns: revision.object.namespace } : {}) })}`;
  return h("details.facts", {}, h("summary", {}, operation(revision), " ", when(revision.time), " by ", user(revision)),
    h("dl", {}, fields.filter(([, value]) => value?.trim()).map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])),
    h("p", {}, h("a", { href: before }, "What changed before this?")));
}
