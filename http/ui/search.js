// Search: a form whose fields become field selectors.

import { choice, field, h } from "./dom.js";
import { selector } from "./api.js";
import { ChangeList } from "./changes.js";
import { complete, facets } from "./facets.js";

const FIELDS = [
  ["name", "Name", "object.name", "web or web-*"], ["kind", "Kind", "object.kind", "Deployment"], ["resource", "Resource", "object.resource", "deployments.apps"], ["ns", "Namespace", "", "all"],
  ["user", "User", "who.username", "jane or system:serviceaccount:ci:*"], ["field", "Field", "changed", "spec.replicas"], ["reason", "Reason", "reason", "ticket 42"],
  ["manager", "Field manager", "who.fieldManager", "helm"], ["address", "Source address", "who.sourceAddress", "10.0.0.7"],
];
const OPERATIONS = [["", "any"], ["Create", "created"], ["Update", "changed"], ["Delete", "deleted"]];
const SINCE = [["", "any time"], ["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"]];
const KNOWN = [...FIELDS.map(([name]) => name), "operation", "since", "s"];

export function search({ query, go, signal }) {
  const state = Object.fromEntries(query);
  if (state.q?.trim()) location.replace(`#/happened?${new URLSearchParams({ q: state.q })}`); // words are for the search box
  const list = new ChangeList({ empty: "No change matches." });
  const form = h("form.filters.wide", { onsubmit: (event) => {
    event.preventDefault();
    const values = [...new FormData(form)].filter(([, value]) => value.trim()).map(([name, value]) => [name, value.trim()]);
    go("search", { ...Object.fromEntries(values), s: "1" });
  } },
  FIELDS.map(([name, label, , placeholder], place) => field(label, h("input", { name, value: state[name] ?? "", placeholder,
    autocomplete: "off", spellcheck: "false", "data-search": place === 0 }))),
  field("Operation", choice("operation", OPERATIONS, state.operation ?? "")),
  field("Since", choice("since", SINCE, state.since ?? "")),
  h("button", { type: "submit" }, "Search"));
  complete(form);
  let found = "";
  if (KNOWN.some((name) => state[name])) { // a link has some of the fields
    const fields = Object.fromEntries(FIELDS.filter(([, , selects]) => selects).map(([name, , selects]) => [selects, state[name]]));
    const selected = selector(fields, { operation: state.operation, "time.from": state.since });
    const pick = (name, value) => go("search", { ...state, [name]: value });
    if (!state.field && !state.reason) found = facets(state.ns ?? "", selected, pick, signal);
    list.show(state.ns ?? "", selected, signal);
  } else {
    list.element.replaceChildren(h("p.empty", {}, "A text that ends in * stands for all that begin so. Creations and deletions count as changes of every field."));
  }
  return { title: "Search", element: h("div.page", {}, h("h1", {}, "Search"), form, found, list.element) };
}
