// An incident: the changes before a moment, the unusual ones first, each with the changes that followed from it.

import { breakable, choice, count, field, h, loading, say, timeText, when, zoneName } from "./dom.js";
import { ApiError, get, resourceName, scopes, selector } from "./api.js";
import { icon } from "./icons.js";
import { BOOKKEEPING, failed, link, operation, searched, summary, user } from "./changes.js";
import { saveFile } from "./export.js";
import { complete } from "./facets.js";
import { actionOf, deed, isController, isProgram, place, thing, userName, value } from "./words.js";
import { TAG, timeOfTag } from "./past.js";

const BEFORE = [["5m", "5 minutes"], ["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"]];
const UNITS = { m: 60, h: 3600 };
const SHOWN = 25; // causes at first, and consequences below one
const DEEP = 6;

export function incident({ query, go, signal }) {
  const state = { at: "", before: "15m", ns: "", ...Object.fromEntries(query) };
  const found = h("section.incident", { "aria-label": "Changes", "aria-busy": "true" }, loading(8));
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    show();
  } },
  field(`Until (${zoneName()})`, h("input", { name: "at", value: state.at, size: "24", placeholder: "now, 2026-01-31T09:30:00Z or tag:…", "data-search": true,
    autocomplete: "off", spellcheck: "false" })),
  field("The time before", choice("before", BEFORE, state.before)),
  field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", autocomplete: "off", spellcheck: "false" })),
  h("button", { type: "submit" }, "Show"));
  form.querySelector("select").addEventListener("change", show);
  complete(form);

  function show() {
    const given = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]));
    go("incident", Object.fromEntries(Object.entries({ ...given, at: given.at === "now" ? "" : given.at }).filter(([, value]) => value)));
  }

  async function load() {
    try {
      const end = !state.at ? Date.now() : state.at.startsWith(TAG) ? await timeOfTag(state.at, signal) : Date.parse(state.at);
      if (Number.isNaN(end)) throw new ApiError(400, `${state.at} is not a time such as 2026-01-31T09:30:00Z.`);
      const begin = end - parseInt(state.before, 10) * UNITS[state.before.at(-1)] * 1000;
      const bounds = [new Date(begin).toISOString(), state.at ? new Date(end).toISOString() : ""];
      const answer = await asked(...bounds);
      const basis = answer.changes.length ? null : await searched(scopes(state.ns), selector({ "time.from": new Date(begin).toISOString(), "time.to": new Date(end).toISOString() }), signal);
      found.replaceChildren(answer.changes.length ? shared(bounds, end) : "", ...drawn(answer, begin, end, basis));
      say(count(answer.changes.length, "change"));
    } catch (error) {
      failed(found, error);
    }
    found.removeAttribute("aria-busy");
  }

  /** Ask for the whole cluster, or for what the visitor may see of it. */
  async function asked(from, to, report = "") {
    const place = scopes(state.ns)[0];
    const question = { summary: "incident", report, fieldSelector: selector(BOOKKEEPING, { "time.from": from, "time.to": to }) };
    try {
      return await get(place.path, { ...question, include: state.ns ? "" : "clusterrevisions" }, signal, place.lacking);
    } catch (error) {
      if (state.ns || !(error instanceof ApiError) || error.code !== 403) throw error;
      return get(place.path, question, signal, place.lacking);
    }
  }

  /** Buttons that save the incident as one file to share. */
  function shared([from], end) {
    return h("p.export", {}, "Save to share: ", [["html", "One HTML file", "text/html"], ["markdown", "Markdown for a postmortem", "text/markdown"]].map(([form, text, type]) =>
      [h("button", { type: "button", onclick: async (event) => {
        event.target.disabled = true;
        try {
          const { text: made } = await asked(from, new Date(end).toISOString(), form);
          saveFile(made, type, `incident.${form === "html" ? "html" : "md"}`);
          say("Saved");
        } catch (error) {
          if (error.name !== "AbortError") say(`It was not saved: ${error.message}`);
        }
        event.target.disabled = false;
      } }, text), " "]));
  }

  load();
  return { title: "Incident", element: h("div.page", {}, h("h1", {}, "What changed before this?"), form, found) };
}

function drawn({ changes, comparedSince, truncated, first, heartbeats }, begin, end, basis) {
  const of = `from ${timeText(begin)} to ${timeText(end)} ${zoneName()}`;
  if (!changes.length) return [h("p.empty", {}, `Nothing changed ${of}.`), basis];
  const below = new Map();
  for (const each of changes) if (each.because) below.set(each.because, [...below.get(each.because) ?? [], each]);
  const known = new Set(changes.map((each) => each.metadata.name));
  const roots = changes.filter((each) => !each.because || !known.has(each.because));
  const causes = roots.filter((each) => !isController(each.who.username ?? ""));
  const controllers = roots.filter((each) => isController(each.who.username ?? ""));
  return [
    h("p.faint", {}, `${count(changes.length, "change")} ${of}, of ${count(roots.length, "cause")}. The unusual ones come first, compared with the changes since revision ${comparedSince}.`
      + (heartbeats ? ` ${count(heartbeats, "heartbeat")} of controllers left out.` : "")),
    truncated ? h("p.note", {}, `There are more changes: those before revision ${first} are left out. Make the time shorter.`) : "",
    causes.length ? listed(causes, below) : h("p.empty", {}, "People and their programs changed nothing in this time."),
    controllers.length ? h("details.rest", {}, h("summary", {}, `${count(controllers.length, "change")} of controllers without a known cause in this time`), listed(controllers, below)) : "",
  ];
}

/** A list of causes that grows by a button. */
function listed(causes, below) {
  const list = h("ol.causes.rows", {});
  let shown = 0;
  const button = h("button", { type: "button", onclick: more }, "More causes");
  function more() {
    list.append(...causes.slice(shown, shown + SHOWN).map((each) => cause(each, below)));
    shown += SHOWN;
    if (shown >= causes.length) button.remove();
  }
  const end = h("p.end", {}, button);
  more();
  return h("div", {}, list, end);
}

function cause(each, below) {
  const rest = below.get(each.metadata.name) ?? [];
  const [verb, picture] = deed({ revision: each, action: actionOf(each) });
  const who = each.who.username ?? "";
  return h("li.row", {}, h(`span.deed-icon.${each.operation.toLowerCase()}`, {}, icon(picture)),
    h("div.told", {}, h("p.deed", {}, userName(each.who), ` ${verb} `, thing(each), place(each), " ", value(each)),
      each.reason && h("p.why", {}, "“", breakable(each.reason), "”"), each.operation === "Update" && !value(each) ? h("p.what", {}, summary(each)) : "",
      h("div.reasons", {}, [...each.reasons, each.grants].map((text) => text && h("span.reason", {}, text))),
      rest.length ? h("details", {}, h("summary", {}, `${count(size(each, below) - 1, "change")} of controllers followed`), consequences(rest, below, 1)) : ""),
    h("span.who", { title: who }, icon(isProgram(who) ? "program" : "person"), when(each.time)));
}

/** The number of changes that follow from one, itself included. Causes are older than their consequences, so it ends. */
function size(each, below) {
  let number = 0;
  for (const left = [each]; left.length; number++) left.push(...below.get(left.pop().metadata.name) ?? []);
  return number;
}

function consequences(changes, below, depth) {
  const sorted = changes.toSorted((one, other) => Number(one.metadata.name) - Number(other.metadata.name));
  const left = sorted.length - SHOWN;
  return h("ul.consequences", {}, sorted.slice(0, SHOWN).map((each) => {
    const rest = below.get(each.metadata.name) ?? [];
    return h("li", {}, line(each), rest.length && depth < DEEP ? consequences(rest, below, depth + 1) : "");
  }), left > 0 ? h("li.faint", {}, `and ${count(left, "other")}`) : "");
}

function line(revision) {
  const { object } = revision;
  return h("div.change", {}, when(revision.time), " ", user(revision), " ", operation(revision), " ",
    h("a.object", { href: link(revision) }, object.namespace && h("span.faint", {}, `${object.namespace} `), breakable(`${resourceName(object)}/`), h("b", {}, breakable(object.name))),
    " ", summary(revision));
}
