// Deleted objects: the person behind each deletion, the time, and the restore that works. Objects that went with another one
// share its row: they come back with it.

import { choice, count, field, h, when, zoneName } from "./dom.js";
import { Changes, deletionMark, number, resourceName, scopes, selector } from "./api.js";
import { ChangeList, NOISE, link } from "./changes.js";
import { behind, isDeletion, originsOf } from "./origins.js";
import { MADE, restoreOf } from "./restore.js";

const SINCE = [["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"], ["", "as long as is kept"]];

// Marks that are asked for at once.
const TOGETHER = 6;
const LISTED = 20; // objects that a row names

export function deleted({ query, go, signal }) {
  const state = { ns: "", since: "7d", noise: "", replaced: "", ...Object.fromEntries(query) };
  if (state.since === "all") state.since = "";
  const list = new ChangeList({
    empty: "Nothing was deleted in this time.", annotate,
    columns: [
      [`Time (${zoneName()})`, (revision) => when(revision.time)],
      ["User", (revision, notes) => behind(revision, notes.origins.get(revision.metadata.name))],
      ["Object", (revision, notes, rest) => [object(revision), rest.length ? h("details", {}, h("summary", {}, `with ${count(rest.length, "other")}`), h("ul.followed", {}, rest.slice(0, LISTED).map((each) => h("li", {}, object(each))),
        rest.length > LISTED ? h("li.faint", {}, `and ${count(rest.length - LISTED, "other")}`) : "")) : ""]],
      ["Bring it back", back],
    ],
    group: (found, notes) => group(found, notes, state.replaced),
  });
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    show();
  } },
  field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", "data-search": true, autocomplete: "off", spellcheck: "false" })),
  field("Since", choice("since", SINCE.map(([value, text]) => [value || "all", text]), state.since || "all")),
  h("label.check", {}, h("input", { type: "checkbox", name: "noise", checked: Boolean(state.noise), onchange: show }), "Events, leases, addresses"),
  h("label.check", { title: "Pods and ReplicaSets that a rollout or a smaller number of replicas removed" }, h("input", { type: "checkbox", name: "replaced", checked: Boolean(state.replaced), onchange: show }), "Replaced Pods"),
  h("button", { type: "submit" }, "Show"));
  form.querySelector("select").addEventListener("change", show);

  function show() {
    const values = Object.fromEntries(new FormData(form));
    go("deleted", Object.fromEntries(Object.entries({ ...values, noise: values.noise ? "1" : "", replaced: values.replaced ? "1" : "" }).filter(([, value]) => value)));
  }

  // Find the objects of a page that were created again, and the marks of those that waited for their end: the state before
  // a mark is to be brought back.
  async function annotate(found) {
    const again = new Map();
    const marks = new Map();
    if (!found.length) return { again, marks, origins: new Map() };
    const fields = selector({ operation: "Create", "revision.from": found.at(-1).metadata.name }, state.noise ? "" : NOISE);
    for (const revision of await new Changes(scopes(state.ns), fields, { signal, page: 500 }).next(2000)) {
      if (!again.has(key(revision))) again.set(key(revision), number(revision));
    }
    const marked = found.filter((revision) => revision.deletionTimestamp);
    for (let first = 0; first < marked.length; first += TOGETHER) {
      await Promise.all(marked.slice(first, first + TOGETHER).map(async (revision) => marks.set(revision, await deletionMark(revision, signal))));
    }
    return { again, marks, origins: await originsOf(found, signal) };
  }

  list.show(state.ns, selector({ operation: "Delete", "time.from": state.since }, state.noise ? "" : NOISE), signal);
  return { title: "Deleted", element: h("div.page", {}, h("h1", {}, "Deleted objects"), form, list.element) };
}

const object = (revision) => h("a.object", { href: link(revision) }, revision.object.namespace && h("span.faint", {}, `${revision.object.namespace} `), `${resourceName(revision.object)}/`, h("b", {}, revision.object.name));

/** Put the objects that went with another one into one row: that of the deleted object itself, or else of the newest. */
function group(found, { origins }, replaced) {
  const rows = new Map();
  for (const each of found) {
    const origin = origins.get(each.metadata.name);
    if (!replaced && origin && !isDeletion(origin) && MADE.has(each.object.resource)) continue;
    const root = origin?.object.uid ?? each.object.uid;
    const row = rows.get(`${root}/${origin?.metadata.name}`);
    if (!row) rows.set(`${root}/${origin?.metadata.name}`, [each]);
    else if (each.object.uid === root) row.unshift(each);
    else row.push(each);
  }
  return [...rows.values()];
}

/** The restore that works, unless somebody has created the object again. */
function back(revision, { again, marks, origins }, rest) {
  if (again.has(key(revision)) && again.get(key(revision)) > number(revision)) return h("span.faint", {}, "it has been created again since");
  return restoreOf(revision, { origin: origins.get(revision.metadata.name), mark: marks.get(revision), rest });
}

const key = ({ object }) => `${object.namespace ?? ""}/${object.resource}/${object.name}`;
