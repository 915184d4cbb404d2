// What happened: pages of the activity of people and their programs, each row with what followed.

import { ApiError, get, scopes, selector } from "./api.js";
import { isController } from "./words.js";
import { groups } from "./past.js";

const SOON = 120e3; // milliseconds between changes that may be folded
const FEW = 3; // folded rows

/** Reads the rows page by page. ``asked``: {fields, ns, text, controllers, clusterScoped}. */
export class Activity {
  constructor(asked, signal) {
    this.asked = asked;
    this.signal = signal;
    this.next = "";
    this.newest = "";
    this.ended = false;
    this.notes = [];
  }

  async #ask(bounds) {
    const { fields, ns, text, controllers, clusterScoped = false } = this.asked;
    const question = { summary: "activity", fieldSelector: selector(fields, bounds), text, controllers: controllers ? "shown" : "" };
    const [own] = scopes(ns, { clusterScoped });
    if (ns || clusterScoped || this.limited) return get(own.path, question, this.signal, own.lacking);
    try {
      return await get(own.path, { ...question, include: "clusterrevisions" }, this.signal, own.lacking);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403) throw error;
      const found = await get(own.path, question, this.signal, own.lacking);
      this.limited = true;
      this.notes.push("Changes of objects outside of namespaces are left out. You lack list on clusterrevisions.");
      return found;
    }
  }

  /** Return the rows of the next page. */
  async page() {
    const found = await this.#ask(this.next ? { "revision.to": this.next } : {});
    this.newest ||= found.metadata.resourceVersion;
    this.next = found.next;
    this.ended = !found.next;
    return found.rows;
  }

  /** Return the rows of the newest page again, and null if nothing has changed since. */
  async again() {
    const found = await this.#ask({});
    const same = found.metadata.resourceVersion === this.newest;
    this.newest = found.metadata.resourceVersion;
    return same ? null : found.rows;
  }

  /** Return the users and numbers of the changes of controllers since a revision, the most first; null: too many. */
  async controllers(since, before) {
    const bounds = { "revision.from": since, "revision.to": before };
    try {
      const found = await groups(["user"], this.asked.ns, selector(this.asked.fields, bounds, "noise=hidden"), { signal: this.signal });
      return found.groups.filter((each) => isController(each.user ?? "")).map((each) => [each.user, each.changes]);
    } catch (error) {
      if (error instanceof ApiError) return null;
      throw error;
    }
  }
}

const alike = (one, other) => one.revision.who.username === other.revision.who.username && one.action === other.action
  && one.revision.operation === other.revision.operation && Math.abs(Date.parse(one.revision.time) - Date.parse(other.revision.time)) < SOON;

const isPlain = (row) => row.followed <= 4 && !row.revision.grants && !row.pods.crash;

/** Fold rows that a program or person made in one go: [[row, …], …], newest first. */
export function folded(rows) {
  const runs = [];
  for (const row of rows) {
    const last = runs.at(-1);
    if (last && isPlain(row) && isPlain(last.at(-1)) && alike(last.at(-1), row)) last.push(row);
    else runs.push([row]);
  }
  return runs.flatMap((run) => (run.length >= FEW ? [run] : run.map((row) => [row])));
}
