// Policies that only audit: the writes that they would have refused, with the users, the times and the messages.

import { ago, breakable, choice, count, field, h, loading, say, timeText } from "./dom.js";
import { Changes, scopes, selector } from "./api.js";
import { failed, link } from "./changes.js";
import { icon } from "./icons.js";
import { actionOf, deed, isProgram, place, shortUser, thing, userName } from "./words.js";

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
  return { title: "Policies", element: h("div.page.narrow", {}, h("div.heading", {}, h("h1", {}, "Policies that only audit"), form),
    h("p.lead", {}, "The writes that ValidatingAdmissionPolicies would have refused that are bound with ",
      h("code", {}, "validationActions: [Audit]"), " alone, judged now from the log."), found) };
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
  const rows = newest.map(({ revision, message }) => {
    const [verb, picture] = deed({ revision: { ...revision, changed: [] }, action: actionOf(revision) });
    const who = revision.who.username ?? "";
    return h("li.row", {}, h(`span.deed-icon.${revision.operation.toLowerCase()}`, {}, icon(picture)),
      h("div.told", {}, h("p.deed", {}, userName(revision.who), ` ${verb} `, thing(revision), place(revision)), h("p.why", {}, breakable(message)),
        h("p.chips", {}, h("a", { href: link(revision) }, "What changed"))),
      h("span.who", { title: who }, icon(isProgram(who) ? "program" : "person"), h("time.ago", { datetime: revision.time, title: timeText(revision.time) }, ago(revision.time))));
  });
  return h("section.card", {}, h("h2", {}, name), h("p.chips", {}, h("span.chip.bad", {}, count(writes, "write")),
    chips(users, shortUser), chips(namespaces, (each) => `in ${each}`)), h("ol.rows", {}, rows));
}

/** The most frequent names with their numbers, and how many others there are. */
function chips(counter, shown) {
  const sorted = [...counter].sort(([, a], [, b]) => b - a);
  const found = sorted.slice(0, SHOWN).map(([name, number]) => h("span.chip", { title: name }, `${shown(name)} ×${number.toLocaleString("en")}`));
  return sorted.length > SHOWN ? [...found, h("span.chip", {}, `and ${count(sorted.length - SHOWN, "other")}`)] : found;
}
