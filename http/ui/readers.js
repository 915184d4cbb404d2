// Who read one object: recorded reads of it and of all objects of its kind, and since when reads are recorded.

import { ago, count, h, timeText } from "./dom.js";
import { reads, recordings } from "./api.js";
import { icon } from "./icons.js";
import { isProgram, userName } from "./words.js";

const VERBS = { get: "read it", list: "listed it", watch: "watched it" };

const FORMS = { metadata: "metadata only", table: "as a table", "dry-run": "dry run: nothing was changed",
  "no-op": "no change: the object was as requested already" };

/** Return the elements of the panel. ApiError. */
export async function readers(namespace, resource, name, signal) {
  const [found, periods] = await Promise.all([reads(namespace, resource, name, signal), recordings(signal)]);
  const rows = found.items.map(row);
  return [
    h("p.lead", {}, covered(periods)), found.notes.map((note) => h("p.note", {}, note)),
    rows.length ? h("ol.rows.reads", {}, rows) : h("p.empty", {}, "No reads are recorded."),
    found.more && h("p.note", {}, `These are the newest ${count(rows.length, "read")}; kubectl chronicle audit shows all.`),
  ];
}

function row(read) {
  const who = read.who.username ?? "";
  const more = extent(read);
  return h("li.row", {}, h("span.deed-icon.read", {}, icon("search")),
    h("div.told", {}, h("p.deed", {}, userName(read.who), ` ${VERBS[read.verb] ?? `sent ${read.verb}`}`, more && h("span.faint", {}, ` (${more})`)),
      h("p.what.faint", {}, [read.who.sourceAddress && `from ${read.who.sourceAddress}`, read.who.userAgent && `with ${read.who.userAgent}`].filter(Boolean).join(" "))),
    h("span.who", { title: who }, icon(isProgram(who) ? "program" : "person"), h("time.ago", { datetime: read.time, title: timeText(read.time) }, ago(read.time))));
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
