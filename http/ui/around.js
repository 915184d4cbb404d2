// The objects around one, beside its state: its owners, its dependents, and its latest Events with theirs.

import { ago, breakable, count, h, timeText } from "./dom.js";
import { get, scopes, selector } from "./api.js";
import { kindOf } from "./words.js";

const TIME = 15 * 60e3; // of the Events; the objects are those that existed at its beginning, or came since
const OBJECTS = 8; // of one kind, by name
const EVENTS = 6;

/** Return the elements; none if nothing is around. ``last``: the newest revision of the object. ApiError. */
export async function around(namespace, resource, name, last, signal) {
  const place = scopes(namespace, { clusterScoped: !namespace })[0];
  const gone = last.operation === "Delete";
  const end = gone ? Date.parse(last.time) : Date.now();
  const fields = selector({ "object.resource": resource, "object.name": name, "time.from": new Date(end - TIME).toISOString(),
    ...(gone ? { "time.to": last.time } : {}) });
  const found = await get(place.path, { summary: "tree", fieldSelector: fields }, signal, place.lacking);
  const lives = (each) => (each.revisions.length ? each.revisions.at(-1).operation !== "Delete" : each.existed);
  const owners = found.objects.filter((each) => each.level < 0).sort((one, other) => one.level - other.level);
  const dependents = found.objects.filter((each) => each.level > 0);
  const events = found.objects.filter((each) => each.level >= 0)
    .flatMap((each) => each.events.map((event) => ({ event, about: each }))).sort((one, other) => Date.parse(other.event.time) - Date.parse(one.event.time));
  const parts = [
    owners.length ? list("Owned by", owners, lives) : "",
    ...[...groups(dependents).values()].map((members) => list(`${gone ? "Owned" : "Owns"} ${members.length.toLocaleString("en")} ${kindOf(members[0], members.length)}`, members, lives)),
    events.length ? reports(events) : "",
    found.truncated ? h("p.faint", {}, "There are more: see the tree.") : "",
  ].filter(Boolean);
  if (!parts.length) return [h("h2", {}, "Around it"), h("p.faint", {}, "No owners, no dependents, and no Events in the last 15 minutes.")];
  return [h("h2", {}, "Around it"), ...parts];
}

function groups(objects) {
  const found = new Map();
  for (const each of objects) found.set(each.resource, [...found.get(each.resource) ?? [], each]);
  return found;
}

function list(title, objects, lives) {
  const shown = objects.toSorted((one, other) => lives(other) - lives(one) || one.name.localeCompare(other.name)).slice(0, OBJECTS);
  return h("section", {}, h("h3", {}, title), h("ul", {}, shown.map((each) => h(`li${lives(each) ? "" : ".gone"}`, {}, link(each), lives(each) ? "" : h("small", {}, " deleted")))),
    objects.length > shown.length ? h("p.faint", {}, `and ${count(objects.length - shown.length, "other")}`) : "");
}

const link = (each) => h("a", { href: `#/object/${[each.namespace || "_", each.resource, each.name].map(encodeURIComponent).join("/")}` },
  h("span.faint", {}, `${each.resource.split(".")[0]}/`), breakable(each.name));

function reports(events) {
  const warnings = events.filter(({ event }) => event.type === "Warning").length;
  return h("section", {}, h("h3", {}, `Events${warnings ? `, ${count(warnings, "warning")}` : ""}`), h("ul", {}, events.slice(0, EVENTS).map(({ event, about }) =>
    h("li", {}, h(`span.event.${event.type === "Warning" ? "warned" : "usual"}`, {}, event.reason ?? event.type ?? "Event"), " ", event.message ?? "",
      event.count > 1 ? ` (×${event.count})` : "", h("small", {}, ` ${about.name}, `, h("time", { datetime: event.time, title: timeText(event.time) }, ago(event.time)))))),
  events.length > EVENTS ? h("p.faint", {}, `and ${count(events.length - EVENTS, "older one")}`) : "");
}
