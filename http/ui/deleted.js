// Deleted objects: author, time, and the command that restores each.

import { choice, field, h, when, zoneName } from "./dom.js";
import { Changes, deletionMark, number, resourceName, scopes, selector } from "./api.js";
import { ChangeList, NOISE, link, user } from "./changes.js";
import { beforeDeletion, bringBack } from "./restore.js";

const SINCE = [["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"], ["", "as long as is kept"]];

// Marks that are asked for at once.
const TOGETHER = 6;

export function deleted({ query, go, signal }) {
  const state = { ns: "", since: "7d", noise: "", ...Object.fromEntries(query) };
  if (state.since === "all") state.since = "";
  const list = new ChangeList({
    empty: "Nothing was deleted in this time.", annotate,
    columns: [
      [`Time (${zoneName()})`, (revision) => when(revision.time)],
      ["User", user],
      ["Object", (revision) => h("a.object", { href: link(revision) }, revision.object.namespace && h("span.faint", {}, `${revision.object.namespace} `),
        `${resourceName(revision.object)}/`, h("b", {}, revision.object.name))],
      ["Bring it back", (revision, { again, marks }) => (again.has(key(revision)) && again.get(key(revision)) > number(revision)
        ? h("span.faint", {}, "it has been created again since") : bringBack(beforeDeletion(revision, marks.get(revision))))],
    ],
  });
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    show();
  } },
  field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", "data-search": true, autocomplete: "off", spellcheck: "false" })),
  field("Since", choice("since", SINCE.map(([value, text]) => [value || "all", text]), state.since || "all")),
  h("label.check", {}, h("input", { type: "checkbox", name: "noise", checked: Boolean(state.noise), onchange: show }), "Events, leases, addresses"),
  h("button", { type: "submit" }, "Show"));
  form.querySelector("select").addEventListener("change", show);

  function show() {
    const values = Object.fromEntries(new FormData(form));
    go("deleted", Object.fromEntries(Object.entries({ ...values, noise: values.noise ? "1" : "" }).filter(([, value]) => value)));
  }

  // Find the objects of a page that were created again, and the marks of those that waited for their end: the state before
  // a mark is to be brought back.
  async function annotate(found) {
    const again = new Map();
    const marks = new Map();
    if (!found.length) return { again, marks };
    const fields = selector({ operation: "Create", "revision.from": found.at(-1).metadata.name }, state.noise ? "" : NOISE);
    for (const revision of await new Changes(scopes(state.ns), fields, { signal, page: 500 }).next(2000)) {
      if (!again.has(key(revision))) again.set(key(revision), number(revision));
    }
    const marked = found.filter((revision) => revision.deletionTimestamp);
    for (let first = 0; first < marked.length; first += TOGETHER) {
      await Promise.all(marked.slice(first, first + TOGETHER).map(async (revision) => marks.set(revision, await deletionMark(revision, signal))));
    }
    return { again, marks };
  }

  list.show(state.ns, selector({ operation: "Delete", "time.from": state.since }, state.noise ? "" : NOISE), signal);
  return { title: "Deleted", element: h("div.page", {}, h("h1", {}, "Deleted objects"), form, list.element) };
}

const key = ({ object }) => `${object.namespace ?? ""}/${object.resource}/${object.name}`;
