// A row of what happened: who did what to what and why, what followed, and how its Pods fared.

import { ago, breakable, count, h, timeText, when } from "./dom.js";
import { because, link, summary } from "./changes.js";
import { icon } from "./icons.js";
import { deed, fullName, isProgram, kindOf, place, shortUser, thing, userName, value } from "./words.js";

const FOLLOWED = { Create: "created", Update: "changed", Delete: "deleted" };
const PODS = [["crash", "crashed", "bad"], ["failed", "failed", "bad"], ["waiting", "waiting", "warn"], ["ready", "ready", "good"], ["done", "completed", "good"]];
const CHIPS = 4;

/** A row for one change, or for several that were made in one go. */
export function row(run) {
  return run.length > 1 ? many(run) : one(run[0]);
}

function one(each) {
  const { revision } = each;
  const [verb, picture] = deed(each);
  const text = h("p.deed", {}, userName(revision.who), ` ${verb} `, thing(revision), place(revision), " ", value(revision));
  return framed({ picture, revision, text, chips: chips(each), more: details(each), key: revision.metadata.name });
}

function many(run) {
  const { revision, action } = run[0];
  const kinds = new Set(run.map((each) => each.revision.object.resource));
  const objects = new Set(run.map((each) => fullName(each.revision)));
  const spaces = new Set(run.map((each) => each.revision.object.namespace).filter(Boolean));
  const [verb] = deed({ revision: { ...revision, changed: [] }, action });
  const name = kinds.size === 1 ? kindOf(revision.object, objects.size) : "objects";
  const text = h("p.deed", {}, userName(revision.who), ` ${verb} `, objects.size === 1 ? thing(revision) : h("b", {}, `${objects.size.toLocaleString("en")} ${name}`),
    spaces.size > 1 ? ` in ${count(spaces.size, "namespace")}` : place(run.find((each) => each.revision.object.namespace)?.revision ?? revision), run.length > objects.size ? h("span.faint", {}, ` (${count(run.length, "change")})`) : "");
  const list = h("ul.followed", {}, run.map((each) => h("li", {}, when(each.revision.time), " ", thing(each.revision), " ", summary(each.revision))));
  return framed({ picture: "many", revision, text, chips: [], more: [list], key: `run-${run.at(-1).revision.metadata.name}` });
}

function framed({ picture, revision, text, chips: shown, more, key }) {
  const who = revision.who.username ?? "";
  const title = `${timeText(revision.time)}, ${shortUser(who)}`;
  return h("li.row", { "data-key": key },
    h(`span.deed-icon.${revision.operation.toLowerCase()}`, {}, icon(picture)),
    h("div.told", {}, text, revision.reason && h("p.why", {}, "“", breakable(revision.reason), "”"), shown.length ? h("p.chips", {}, shown) : "",
      h("details", {}, h("summary", { "aria-label": `Details: ${title}` }, "Details"), more)),
    h("span.who", { title: who }, icon(isProgram(who) ? "program" : "person"), h("time.ago", { datetime: revision.time, title: timeText(revision.time) }, ago(revision.time))));
}

function chips({ revision, kinds, pods, followed }) {
  const found = [];
  if (revision.grants) found.push(chip(revision.grants, "warn"));
  for (const [state, word, tone] of PODS) if (pods[state]) found.push(chip(`${count(pods[state], "Pod")} ${word}`, tone));
  for (const each of kinds.slice(0, CHIPS)) found.push(chip(`${each.objects.toLocaleString("en")} ${kindOf(each, each.objects)} ${FOLLOWED[each.operation]}`, "", each.names.join(", ")));
  if (followed && !kinds.length) found.push(chip(`${count(followed, "report")} followed`));
  return found;
}

const chip = (text, tone = "", title = null) => h(`span.chip${tone ? `.${tone}` : ""}`, { title }, text);

function details({ revision, consequences, followed }) {
  const { object } = revision;
  const path = link(revision);
  const at = new URLSearchParams({ at: revision.time, ...(object.namespace ? { ns: object.namespace } : {}) });
  const asked = new URLSearchParams({ ns: object.namespace ?? "_", at: revision.metadata.name });
  return [
    h("p.what", {}, when(revision.time), " · ", summary(revision), because(revision)),
    consequences.length ? h("ul.followed", {}, consequences.map((each) => h("li", {}, when(each.time), " ", h("span.user", { title: each.who.username }, shortUser(each.who.username ?? "")),
      ` ${each.operation.toLowerCase()}d `, thing(each), each.known === "inferred" ? h("small.faint", {}, " (inferred)") : "", " ", each.operation === "Update" ? summary(each) : "")),
    followed > consequences.length ? h("li.faint", {}, `and ${count(followed - consequences.length, "other")}, reports of states included`) : "") : "",
    h("p.links", {}, h("a", { href: path }, "What changed in it"), " · ", h("a", { href: `#/happened?${new URLSearchParams({ q: `by ${revision.who.username}` })}` }, "All of this user"), " · ", h("a", { href: `${path}&tab=why` }, "Why"), " · ", h("a", { href: `#/incident?${at}` }, "What happened before"), " · ",
      h("a", { href: `#/cluster?${asked}` }, "The cluster then")),
  ];
}
