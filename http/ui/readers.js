// Who read one object: recorded reads of it and of all objects of its kind, and since when reads are recorded.

import { count, h, timeText, when, zoneName } from "./dom.js";
import { reads, recordings } from "./api.js";

const FORMS = { metadata: "metadata only", table: "as a table", "dry-run": "dry run: nothing was changed",
  "no-op": "no change: the object was as requested already" };

/** Return the elements of the panel. ApiError. */
export async function readers(namespace, resource, name, signal) {
  const [found, periods] = await Promise.all([reads(namespace, resource, name, signal), recordings(signal)]);
  const body = found.items.map((read) => h("tr", {}, h("td", {}, when(read.time)), h("td", {}, h("span.user", {}, read.who.username || "unknown"),
    read.who.impersonator && h("small", {}, ` by ${read.who.impersonator}`)), h("td", {}, read.verb, " ", h("span.faint", {}, extent(read))),
  h("td", {}, read.who.sourceAddress ?? "", " ", h("small.faint", {}, read.who.userAgent ?? ""))));
  const columns = [`Time (${zoneName()})`, "User", "Read", "From"].map((title) => h("th", { scope: "col" }, title));
  return [
    body.length ? h("table.reads", {}, h("thead", {}, h("tr", {}, columns)), h("tbody", {}, body)) : h("p.empty", {}, "No reads are recorded."),
    found.more && h("p.note", {}, `These are the newest ${count(body.length, "read")}; kubectl chronicle audit shows all.`),
    found.notes.map((note) => h("p.note", {}, note)), h("p.note", {}, covered(periods)),
  ];
}

function extent(read) {
  const all = !read.object.name && (read.object.namespace ? "all in the namespace" : "all in the cluster");
  return [all, FORMS[read.form]].filter(Boolean).join(", ");
}

function covered(periods) {
  if (!periods) return "You may not list readrecordings, so it is not known since when reads are recorded.";
  if (!periods.length) return "This server records no reads (--audit-reads-policy-file), so nobody can be ruled out.";
  const since = periods.map((each) => each.since).sort()[0];
  const lost = periods.reduce((sum, each) => sum + each.lost, 0);
  return `Reads that the policy names are recorded since ${timeText(since)}, with ${count(periods.length, "period")} of recording`
    + `${lost ? ` and ${count(lost, "lost read")}` : ""}. kubectl chronicle audit tells whether they include this object.`;
}
