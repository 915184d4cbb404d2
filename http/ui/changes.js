// The list of changes that the pages share: a table with a link to the object at the revision in each row.

import { breakable, count, h, loading, say, when, zoneName } from "./dom.js";
import { exportButtons } from "./export.js";
import { ApiError, Changes, covered, resourceName, scopes, selector } from "./api.js";

// The server knows the noisy kinds (api/history/noise.py), for kubectl and the commands, too.
// Addresses of Services are companions of their changes.
export const BOOKKEEPING = "object.resource!=ipaddresses.networking.k8s.io";
export const NOISE = `noise=hidden,${BOOKKEEPING}`;
const PAGE = 100;

export function link(revision) {
  const { object } = revision;
  const path = [object.namespace || "_", resourceName(object), object.name].map(encodeURIComponent).join("/");
  return `#/object/${path}?rev=${revision.metadata.name}`;
}

/** The operation as a coloured word. */
export function operation(revision) {
  return h(`span.operation.${revision.operation.toLowerCase()}`, {}, revision.operation);
}

export function user(revision) {
  const { username, impersonator } = revision.who;
  return [h("span.user", {}, breakable(username || "unknown")), impersonator && h("small", {}, " by ", breakable(impersonator))];
}

/** Summarize a change in few words. */
export function summary(revision) {
  if (revision.problem) return h("span.redacted", {}, `the object cannot be decrypted: ${revision.problem}`);
  if (revision.redacted) {
    const { object } = revision;
    return h("span.redacted", { title: `You lack get on ${resourceName(object)}` }, "redacted: you may not read this object");
  }
  if (revision.erased) return h("span.redacted", {}, "the object is erased from history");
  if (revision.operation !== "Update") return h("span.faint", {}, `the whole object was ${revision.operation.toLowerCase()}d`);
  if (revision.beforeErased) return h("span.redacted", {}, "the object before is erased from history");
  return revision.summary ? h("code", {}, breakable(revision.summary)) : h("span.faint", {}, "bookkeeping only");
}

/** The reason of a change, as its client gave it; "" for none. */
export function because(revision) {
  return revision.reason ? h("div.because", {}, h("small.faint", {}, "because "), breakable(revision.reason)) : "";
}

const columns = () => [
  [`Time (${zoneName()})`, (revision) => when(revision.time)],
  ["User", user],
  ["Change", operation],
  ["Object", (revision) => h("a.object", { href: link(revision) },
    revision.object.namespace && h("span.faint", {}, `${revision.object.namespace} `), breakable(`${resourceName(revision.object)}/`), h("b", {}, breakable(revision.object.name)))],
  ["What", (revision) => [summary(revision), because(revision)]],
];

/**
 * A table with its rows, the button for more, and errors. ``columns``: [title, make] instead of the usual ones.
 * ``group``: makes the lists of changes that share a row; the first one is the row's.
 */
export class ChangeList {
  constructor({ columns: shown = columns(), empty = "There are no changes here.", page = PAGE, annotate, group = (found) => found.map((each) => [each]) } = {}) {
    this.columns = shown;
    this.empty = empty;
    this.page = page;
    this.annotate = annotate;
    this.group = group;
    this.element = h("section.changes", { "aria-label": "Changes" });
  }

  /** Show the first page. ``fields``: a field selector. */
  async show(namespace, fields, signal) {
    this.element.replaceChildren(loading(12));
    this.element.setAttribute("aria-busy", "true");
    this.changes = new Changes(scopes(namespace), fields, { signal, page: this.page });
    this.body = h("tbody");
    try {
      const found = await this.changes.next(this.page);
      await this.#add(found);
      const shown = found.length ? this.#table() : h("p.empty", {}, this.changes.ended ? this.empty : "None of the newest changes match.");
      this.element.replaceChildren(...this.changes.notes.map((note) => h("p.note", {}, note)), shown, this.#more(),
        found.length ? exportButtons(() => new Changes(scopes(namespace), fields, { signal, page: 500 })) : "");
      say(found.length ? count(found.length, "change") : this.empty);
      if (!found.length && this.changes.ended) this.element.append(await searched(scopes(namespace), fields, signal));
    } catch (error) {
      failed(this.element, error);
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  /** Put changes that have just happened above the others, while the page is open. ``every``: milliseconds. */
  follow(namespace, fields, signal, every) {
    let { positions } = this.changes;
    if (!positions.some(Boolean)) return; // the first page could not be read
    const look = async () => {
      if (signal.aborted) return;
      try {
        const fresh = new Changes(scopes(namespace), fields, { signal, page: this.page, order: "oldest", after: positions });
        const found = [];
        do found.push(...await fresh.next(this.page)); while (!fresh.ended);
        positions = fresh.positions;
        if (found.length) {
          await this.#add(found.reverse(), { first: true });
          if (!this.body.isConnected) this.element.replaceChildren(this.#table());
          say(count(found.length, "new change"));
        }
        setTimeout(look, every);
      } catch (error) {
        failed(this.element, error);
      }
    };
    setTimeout(look, every);
  }

  #table() {
    return h("table", {}, h("thead", {}, h("tr", {}, this.columns.map(([title]) => h("th", { scope: "col" }, title)))), this.body);
  }

  async #add(found, { first = false } = {}) {
    const notes = this.annotate ? await this.annotate(found) : null;
    const rows = this.group(found, notes).map(([revision, ...rest]) => h("tr", { "data-href": link(revision) },
      this.columns.map(([title, make]) => h("td", { "data-title": title }, make(revision, notes, rest)))));
    if (first) this.body.prepend(...rows);
    else this.body.append(...rows);
  }

  #more() {
    if (this.changes.ended) return h("p.end");
    const button = h("button", { type: "button", onclick: async () => {
      button.disabled = true;
      try {
        const found = await this.changes.next(this.page);
        const first = this.body.rows.length;
        await this.#add(found);
        if (!this.body.isConnected && found.length) this.element.prepend(h("table", {}, this.body));
        button.disabled = false;
        if (this.changes.ended) button.remove();
        this.body.rows[first]?.querySelector("a")?.focus();
        say(count(found.length, "more change"));
      } catch (error) {
        failed(this.element, error);
      }
    } }, "Older changes");
    return h("p.end", {}, button);
  }
}

/** Say what an empty answer rests on: "no changes" may stand for a mistyped name or a time that is not kept. */
export async function searched(places, fields, signal) {
  return h("p.note.searched", {}, (await covered(places, fields, signal)).join(" "));
}

/** Show an error in place of the content. */
export function failed(element, error) {
  if (error.name === "AbortError") return;
  const [title, text] = error instanceof ApiError ? error.explanation() : ["Something is wrong with this page", String(error)];
  if (!(error instanceof ApiError)) console.error(error);
  element.replaceChildren(h("div.error", { role: "alert" }, h("h2", {}, title), h("p", {}, text)));
}
