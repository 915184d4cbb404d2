// What happened: the changes of people and their programs, by day, each with what followed; live.

import { ago, count, h, loading, say, timeText, write } from "./dom.js";
import { scopes, selector } from "./api.js";
import { Activity, folded } from "./activity.js";
import { failed, searched } from "./changes.js";
import { icon } from "./icons.js";
import { knownNames, understood } from "./query.js";
import { row } from "./rows.js";
import { shortUser } from "./words.js";

// Milliseconds between two looks for new changes.
const LIVE = 4000;
const ROWS = 25; // that the page asks for at first, folded
const PAGES = 5; // that it reads for them
const NAMED = 3; // controllers that a fold names

export function happened({ query, go, signal }) {
  const state = { q: "", all: "", live: "", ...Object.fromEntries(query) };
  const list = h("section.happened", { "aria-label": "What happened", "aria-busy": "true" }, loading(10));
  const meaning = h("p.meaning", {});
  const move = (next) => go("happened", Object.fromEntries(Object.entries({ ...state, ...next }).filter(([, value]) => value)));
  const option = (name, text, title) => h("label.toggle", { title }, h("input", { type: "checkbox", name, checked: Boolean(state[name]),
    onchange: (event) => move({ [name]: event.target.checked ? "1" : "" }) }), h("span", {}, text));
  const live = h("label.toggle", { title: "Show new changes as they happen" }, h("input", { type: "checkbox", name: "live", checked: state.live !== "off",
    onchange: (event) => move({ live: event.target.checked ? "" : "off" }) }), h("span.live", {}, "Live"));

  async function load() {
    try {
      const known = state.q ? await knownNames(signal) : { users: [], namespaces: [] };
      const found = understood(state.q, known);
      meaning.replaceChildren(...found.parts.map(([word, what]) => h("span.chip", {}, h("b", {}, word), ` ${what}`)));
      const activity = new Activity({ fields: found.fields, ns: found.ns, text: found.text, controllers: Boolean(state.all) || found.named || Boolean(found.fields["who.username"]) }, signal);
      const shown = new Shown(list, activity, found);
      await shown.begin();
      if (state.live !== "off") shown.follow(signal);
    } catch (error) {
      failed(list, error);
    }
    list.removeAttribute("aria-busy");
  }

  load();
  const title = state.q ? `“${state.q}”` : "What happened";
  return { title, element: h("div.page.narrow", {}, h("div.heading", {}, h("h1", {}, title), h("div.toggles", {}, option("all", "Controllers too", "Also rows for changes of controllers"), live)), meaning, list) };
}

/** The rows on the page. Rows that are open stay open when the newest are drawn again. */
class Shown {
  constructor(list, activity, asked) {
    this.list = list;
    this.activity = activity;
    this.asked = asked;
    this.rows = [];
    this.days = h("div.days", {});
    this.folds = h("div", {});
    this.foot = h("p.end", {});
  }

  async begin() {
    await this.#more(ROWS, PAGES);
    this.list.replaceChildren(...this.activity.notes.map((note) => h("p.note", {}, note)), this.days, this.folds, this.foot);
    say(this.rows.length ? count(this.rows.length, "change") : "Nothing found");
  }

  async #more(wanted, pages) {
    const before = folded(this.rows).length;
    for (let read = 0; read < pages && !this.activity.ended && folded(this.rows).length < before + wanted; read++) this.rows.push(...await this.activity.page());
    this.#draw();
    await Promise.all([this.#fold(), this.#empty()]);
    this.#end();
  }

  #draw() {
    const open = new Set([...this.days.querySelectorAll("details[open]")].map((each) => each.closest(".row").dataset.key));
    const focused = document.activeElement?.closest?.(".row")?.dataset.key;
    const place = focused && [...document.activeElement.closest(".row").querySelectorAll("a, summary")].indexOf(document.activeElement);
    const days = new Map();
    for (const run of folded(this.rows)) {
      const day = dayOf(run[0].revision.time);
      days.set(day, [...days.get(day) ?? [], run]);
    }
    this.days.replaceChildren(...[...days].map(([day, runs]) => h("section.day", { "aria-label": day }, h("h2", {}, day), h("ol.rows", {}, runs.map(row)))));
    for (const each of this.days.querySelectorAll(".row")) {
      if (open.has(each.dataset.key)) each.querySelector("details").open = true;
      if (focused === each.dataset.key) each.querySelectorAll("a, summary")[place]?.focus({ preventScroll: true });
    }
  }

  /** Say what controllers did in the time that is shown, in one line. */
  async #fold() {
    if (this.asked.named || this.activity.asked.controllers || this.asked.text || this.asked.fields.changed || !this.rows.length && !this.activity.ended) return;
    const since = this.activity.ended ? "1" : String(Number(this.activity.next) + 1);
    const found = await this.activity.controllers(since, this.activity.newest);
    const total = found?.reduce((sum, [, changes]) => sum + changes, 0);
    if (!total) return void this.folds.replaceChildren();
    const named = found.slice(0, NAMED).map(([user, changes]) => `${shortUser(user)} ${changes.toLocaleString("en")}`).join(", ");
    const address = `#/happened?${new URLSearchParams({ ...(this.asked.parts.length ? { q: this.asked.parts.map(([word]) => word).join(" ") } : {}), all: "1" })}`;
    this.folds.replaceChildren(h("a.fold", { href: address }, icon("program"), h("span", {}, h("b", {}, `${count(total, "change")} of controllers and of the server itself`), h("span.faint", {}, ` in this time: ${named}${found.length > NAMED ? ", …" : ""}`))));
  }

  async #empty() {
    if (this.rows.length) return;
    if (!this.activity.ended) return void this.days.replaceChildren(h("p.empty", {}, "None of the newest changes match."));
    const { fields, ns, text, parts } = this.asked;
    const words = parts.length ? "No change matches." : "Nobody has changed anything yet. Changes appear here as they happen.";
    const where = text || fields.changed ? "" : await searched(scopes(ns), selector(fields), this.activity.signal);
    this.days.replaceChildren(h("p.empty", {}, words), where);
  }

  #end() {
    if (this.activity.ended) return void this.foot.replaceChildren(this.rows.length ? h("span.faint", {}, "These are all that is kept.") : "");
    const oldest = this.rows.at(-1)?.revision.time;
    const button = h("button", { type: "button", onclick: async () => {
      button.disabled = true;
      const before = this.rows.length;
      try {
        await this.#more(ROWS, PAGES);
        say(count(this.rows.length - before, "more change"));
      } catch (error) {
        failed(this.foot, error);
      }
    } }, oldest ? `Older than ${timeText(oldest, { seconds: false })}` : "Search older changes");
    this.foot.replaceChildren(button);
  }

  /** Look for new changes while the page is open. The newest rows are drawn again, as consequences may have come. */
  follow(signal) {
    const look = async () => {
      if (signal.aborted) return;
      try {
        const fresh = document.hidden ? null : await this.activity.again();
        if (fresh) this.#merge(fresh);
        else for (const each of this.days.querySelectorAll("time.ago")) write(each, ago(each.dateTime));
        setTimeout(look, LIVE);
      } catch (error) {
        failed(this.list, error);
      }
    };
    setTimeout(look, LIVE);
  }

  #merge(fresh) {
    const known = new Set(this.rows.map((each) => each.revision.metadata.name));
    const added = fresh.filter((each) => !known.has(each.revision.metadata.name)).length;
    const again = new Set(fresh.map((each) => each.revision.metadata.name));
    this.rows = [...fresh, ...this.rows.filter((each) => !again.has(each.revision.metadata.name))];
    this.#draw();
    if (added) say(count(added, "new change"));
  }
}

function dayOf(time) {
  const day = timeText(time).slice(0, 10);
  const now = Date.now();
  if (day === timeText(now).slice(0, 10)) return "Today";
  if (day === timeText(now - 86400e3).slice(0, 10)) return "Yesterday";
  return new Date(`${day}T00:00:00Z`).toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
}
