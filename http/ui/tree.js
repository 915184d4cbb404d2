// An object over time with its owners, dependents and Events: a lane for each object, and the changes below.

import { breakable, choice, count, field, h, s, timeText, when, zoneName } from "./dom.js";
import { get, resourceName, scopes, selector } from "./api.js";
import { link, operation, summary, user } from "./changes.js";

const RANGES = [["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const UNITS = { m: 60, h: 3600, d: 86400 };
const [WIDE, HIGH] = [1000, 18];
const LINES = 300;

/** Return the elements of the panel. ``until``: the newest revision of the object. ``move``: show another range. ApiError. */
export async function tree(namespace, resource, name, until, range, move, signal) {
  const place = scopes(namespace, { clusterScoped: !namespace })[0];
  // The range ends at the chosen revision and a little after it: consequences follow their cause.
  const length = parseInt(range, 10) * UNITS[range.at(-1)] * 1000;
  const end = Math.min(Date.now(), Date.parse(until.time) + length / 4);
  const begin = end - length;
  const fields = selector({ "object.resource": resource, "object.name": name, "time.from": new Date(begin).toISOString(), "time.to": new Date(end).toISOString() });
  const found = await get(place.path, { summary: "tree", fieldSelector: fields }, signal, place.lacking);
  const form = h("div.options", {}, field("Over", choice("range", RANGES, range)));
  form.querySelector("select").addEventListener("change", (event) => move(event.target.value));
  const objects = inOrder(found.objects);
  return [
    form,
    objects.length ? lanes(objects, begin, end, resource, name) : h("p.empty", {}, "It did not exist in this time."),
    found.left.length ? h("p.note", {}, `Left out: ${found.left.join(", ")}; their history begins later.`) : "",
    found.truncated ? h("p.note", {}, "The tree is not whole: choose a shorter time.") : "",
    objects.length ? changes(objects) : "",
  ];
}

/** Return [depth, object] with each object below the nearest of its owners. */
function inOrder(objects) {
  const known = new Set(objects.map((each) => each.uid));
  const below = new Map();
  const born = (each) => (each.existed || !each.revisions.length ? 0 : Number(each.revisions[0].metadata.name));
  for (const each of objects.toSorted((one, other) => one.resource.localeCompare(other.resource) || born(one) - born(other) || one.name.localeCompare(other.name))) {
    const owner = each.owners.find((uid) => known.has(uid)) ?? "";
    below.set(owner, [...below.get(owner) ?? [], each]);
  }
  const placed = new Map();
  const left = (below.get("") ?? []).map((each) => [0, each]).reverse();
  while (left.length) {
    const [depth, each] = left.pop();
    if (placed.has(each.uid)) continue;
    placed.set(each.uid, [depth, each]);
    left.push(...(below.get(each.uid) ?? []).map((next) => [depth + 1, next]).reverse());
  }
  for (const each of objects) if (!placed.has(each.uid)) placed.set(each.uid, [0, each]); // objects that own each other
  return [...placed.values()];
}

function lanes(objects, begin, end, resource, name) {
  const x = (time) => Math.min(Math.max((Date.parse(time) - begin) / (end - begin), 0), 1) * WIDE;
  const rows = objects.map(([depth, each]) => h(`tr${each.resource === resource && each.name === name ? ".chosen" : ""}`, {},
    h("th", { scope: "row" }, h("span", { class: `depth-${Math.min(depth, 6)}` }, objectLink(each))),
    h("td", {}, lane(each, x))));
  const middle = begin + (end - begin) / 2;
  return h("table.lanes", {}, h("caption.unseen", {}, `Lives of ${count(objects.length, "object")}`), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `Time (${zoneName()})`),
    h("th", { scope: "col" }, h("span.axis", {}, [begin, middle, end].map((time) => h("span", {}, timeText(time, { seconds: end - begin < 600e3 }))))))), h("tbody", {}, rows));
}

const objectLink = (each) => h("a", { href: `#/object/${[each.namespace || "_", each.resource, each.name].map(encodeURIComponent).join("/")}` },
  h("span.faint", {}, `${each.resource.split(".")[0]}/`), breakable(each.name));

function lane(each, x) {
  const middle = HIGH / 2;
  const parts = [];
  let exists = each.existed;
  let since = 0;
  const life = (to) => parts.push(s("rect", { class: "life", x: since, y: middle - 2, width: Math.max(to - since, 1), height: 4 }));
  for (const revision of each.revisions) {
    const here = x(revision.time);
    if (exists) life(here);
    exists = revision.operation !== "Delete";
    since = here;
  }
  if (exists) life(WIDE);
  for (const revision of each.revisions) {
    parts.push(s("rect", { class: `mark ${revision.operation.toLowerCase()}`, x: Math.min(x(revision.time), WIDE - 4), y: 3, width: 4, height: HIGH - 6 }));
  }
  for (const event of each.events.filter(({ type }) => type === "Warning")) parts.push(s("rect", { class: "mark warning", x: Math.min(x(event.time), WIDE - 4), y: 0, width: 4, height: 6 }));
  const warnings = each.events.filter(({ type }) => type === "Warning").length;
  return h("div", { role: "img", "aria-label": `${count(each.revisions.length, "change")}${warnings ? `, ${count(warnings, "warning")}` : ""}${each.existed ? "" : ", not there at first"}${exists ? "" : ", gone at the end"}` },
    s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts));
}

// All changes and Events of these objects, in the order of their commits.
function changes(objects) {
  const lines = objects.flatMap(([, each]) => [
    ...each.revisions.map((revision) => [Number(revision.metadata.name), revision.time, [user(revision), " ", operation(revision), " ",
      h("a", { href: link(revision) }, breakable(`${resourceName(revision.object)}/${revision.object.name}`)), " ", summary(revision)]]),
    ...each.events.map((event) => [Number(event.revision), event.time, [h(`span.event.${event.type === "Warning" ? "warned" : "usual"}`, {}, event.type || "Event"),
      ` ${event.reason ?? ""} `, objectLink(each), ` ${event.message ?? ""}`, event.count > 1 ? ` (×${event.count})` : ""]]),
  ]).sort(([one, early], [other, late]) => Date.parse(early) - Date.parse(late) || one - other);
  return [
    h("h2", {}, `Changes and Events (${lines.length.toLocaleString("en")})`),
    lines.length > LINES ? h("p.note", {}, `The newest ${LINES} are shown.`) : "",
    h("ol.story", {}, lines.slice(-LINES).map(([, time, what]) => h("li", {}, when(time), " ", what))),
  ];
}
