// The list of changes that the pages share: a table with a link to the object at the revision in each row.

import { h, loading, say, when, count } from "./dom.js";
import { ApiError, Changes, resourceName, scopes } from "./api.js";

// The server knows the noisy kinds (api/history/noise.py), for kubectl and the commands, too.
export const NOISE = "noise=hidden";
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
  return [h("span.user", {}, username || "unknown"), impersonator && h("small", {}, ` by ${impersonator}`)];
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
  return revision.summary ? h("code", {}, revision.summary) : h("span.faint", {}, "bookkeeping only");
}

const COLUMNS = [
  ["Time (UTC)", (revision) => when(revision.time)],
  ["User", user],
  ["Change", operation],
  ["Object", (revision) => h("a.object", { href: link(revision) },
    revision.object.namespace && h("span.faint", {}, `${revision.object.namespace} `), `${resourceName(revision.object)}/`, h("b", {}, revision.object.name))],
  ["What", summary],
];

/** A table with its rows, the button for more, and errors. ``columns``: [title, make] instead of the usual ones. */
export class ChangeList {
  constructor({ columns = COLUMNS, empty = "There are no changes here.", page = PAGE, annotate } = {}) {
    this.columns = columns;
    this.empty = empty;
    this.page = page;
    this.annotate = annotate;
    this.element = h("section.changes", { "aria-label": "Changes" });
  }

  /** Show the first page. ``fields``: a field selector. */
  async show(namespace, fields, signal) {
    this.element.replaceChildren(loading(12));
    this.element.setAttribute("aria-busy", "true");
    this.changes = new Changes(scopes(namespace), fields, { signal, page: this.page });
    this.body = h("tbody");
    try {
      const table = h("table", {}, h("thead", {}, h("tr", {}, this.columns.map(([title]) => h("th", { scope: "col" }, title)))), this.body);
      const found = await this.changes.next(this.page);
      await this.#add(found);
      const shown = found.length ? table : h("p.empty", {}, this.changes.ended ? this.empty : "None of the newest changes match.");
      this.element.replaceChildren(...this.changes.notes.map((note) => h("p.note", {}, note)), shown, this.#more());
      say(found.length ? count(found.length, "change") : this.empty);
    } catch (error) {
      failed(this.element, error);
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  async #add(found) {
    const notes = this.annotate ? await this.annotate(found) : null;
    this.body.append(...found.map((revision) => h("tr", { "data-href": link(revision) },
      this.columns.map(([title, make]) => h("td", { "data-title": title }, make(revision, notes))))));
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

/** Show an error in place of the content. */
export function failed(element, error) {
  if (error.name === "AbortError") return;
  const [title, text] = error instanceof ApiError ? error.explanation() : ["Something is wrong with this page", String(error)];
  if (!(error instanceof ApiError)) console.error(error);
  element.replaceChildren(h("div.error", { role: "alert" }, h("h2", {}, title), h("p", {}, text)));
}
