// Policies that only audit: the writes that they would have refused, with the users, the times and the messages.

import { choice, count, field, h, loading, say, when, zoneName } from "./dom.js";
import { Changes, resourceName, scopes, selector } from "./api.js";
import { failed, link, operation, user } from "./changes.js";

const SINCE = [["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"], ["all", "as long as is kept"]];
const PAGE = 500;
const SHOWN = 5; // users, namespaces and newest writes of a policy

export function policies({ query, go, signal }) {
  const state = { ns: "", since: "24h", ...Object.fromEntries(query) };
  const found = h("section.changes", { "aria-label": "Policies" });
  const form = h("form.filters", { onsubmit: (event) => {
    event.preventDefault();
    show();
  } },
  field("Namespace", h("input", { name: "ns", value: state.ns, placeholder: "all", "data-search": true, autocomplete: "off", spellcheck: "false" })),
  field("Since", choice("since", SINCE, state.since)),
  h("button", { type: "submit" }, "Show"));
  form.querySelector("select").addEventListener("change", show);

  function show() {
    go("policies", Object.fromEntries([...new FormData(form)].filter(([, value]) => value)));
  }

  const fields = selector({ "time.from": state.since === "all" ? "" : state.since });
  new Verdicts(found, new Changes(scopes(state.ns), fields, { signal, page: PAGE, verdicts: "audited" }), state).more();
  return { title: "Policies", element: h("div.page", {}, h("h1", {}, "Policies that only audit"),
    h("p.faint", {}, "The writes that ValidatingAdmissionPolicies would have refused that are bound with ",
      h("code", {}, "validationActions: [Audit]"), " alone, judged now from the log."), form, found) };
}

/** The writes found so far, by policy. */
class Verdicts {
  constructor(element, changes, { since }) {
    this.element = element;
    this.changes = changes;
    this.since = since === "all" ? "all history that is kept" : SINCE.find(([value]) => value === since)?.[1] ?? since;
    this.writes = 0;
    this.tallies = new Map();
  }

  /** Judge some more writes, and show all. */
  async more() {
    this.element.replaceChildren(loading(6));
    this.element.setAttribute("aria-busy", "true");
    try {
      for (const revision of await this.changes.next(PAGE)) this.#add(revision);
      this.#show();
    } catch (error) {
      failed(this.element, error);
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  #add(revision) {
    this.writes += 1;
    this.oldest = revision.time;
    const messages = new Map(revision.verdicts.map((verdict) => [verdict.policy, verdict.message]));
    for (const [policy, message] of messages) {
      const tally = this.tallies.get(policy) ?? { writes: 0, users: new Map(), namespaces: new Map(), newest: [] };
      this.tallies.set(policy, tally);
      tally.writes += 1;
      increase(tally.users, revision.who.username || "unknown");
      increase(tally.namespaces, revision.object.namespace || "(cluster)");
      if (tally.newest.length < SHOWN) tally.newest.push({ revision, message });
    }
  }

  #show() {
    const { ended, notes, warnings } = this.changes;
    const summary = this.writes
      ? `${count(this.writes, "write")} would have been refused, ${ended ? `in ${this.since}` : "of the newest ones"}.`
      : ended ? "No write would have been refused, or no policy only audits." : "None of the newest writes would have been refused.";
    const sections = [...this.tallies].sort(([, a], [, b]) => b.writes - a.writes).map(([name, tally]) => section(name, tally));
    const button = h("button", { type: "button", onclick: () => this.more() }, "Judge older writes");
    this.element.replaceChildren(...[...notes, ...warnings].map((note) => h("p.note", {}, note)), h("p", {}, summary), ...sections,
      h("p.end", {}, !ended && button));
    say(summary);
  }
}

function increase(counter, name) {
  counter.set(name, (counter.get(name) ?? 0) + 1);
}

function section(name, { writes, users, namespaces, newest }) {
  const rows = newest.map(({ revision, message }) => h("tr", { "data-href": link(revision) },
    h("td", { "data-title": `Time (${zoneName()})` }, when(revision.time)),
    h("td", { "data-title": "User" }, user(revision)),
    h("td", { "data-title": "Change" }, operation(revision)),
    h("td", { "data-title": "Object" }, h("a.object", { href: link(revision) },
      revision.object.namespace && h("span.faint", {}, `${revision.object.namespace} `),
      `${resourceName(revision.object)}/`, h("b", {}, revision.object.name))),
    h("td", { "data-title": "Message" }, message)));
  const titles = [`Time (${zoneName()})`, "User", "Change", "Object", "Message"].map((title) => h("th", { scope: "col" }, title));
  return h("section", {}, h("h2", {}, name),
    h("p", {}, `${count(writes, "write")}, the last one at `, when(newest[0].revision.time), `. Users: ${most(users)}. Namespaces: ${most(namespaces)}.`),
    h("table", {}, h("thead", {}, h("tr", {}, titles)), h("tbody", {}, rows)));
}

/** Return the most frequent names with their numbers, and how many others there are. */
function most(counter) {
  const sorted = [...counter].sort(([, a], [, b]) => b - a);
  const shown = sorted.slice(0, SHOWN).map(([name, number]) => `${name} (${number})`).join(", ");
  return sorted.length > SHOWN ? `${shown} and ${sorted.length - SHOWN} more` : shown;
}
