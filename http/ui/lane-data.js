// The changes of lanes: columns of numbers, read in pages, sorted by time, and divided into lanes.

import { ApiError, get, scopes, selector } from "./api.js";
import { shortUser } from "./words.js";

export const MOST = 50000; // changes that the page holds
const GROWTH = 8192;
const MANY = 200;
const FEW = 0.01; // of many changes, at each end
const FAR = 0.3; // of the time of the others: these few are left out if they are farther away

/** The columns of all changes, oldest first once ``sort`` has run. ``objects``: [resource, namespace, name, uid]. */
export class LaneData {
  length = 0;
  objects = [];
  users = [];
  stateNames = [];
  truncated = false;

  constructor() {
    this.#grow(GROWTH);
    this.objectPlaces = new Map();
    this.userPlaces = new Map();
  }

  #grow(size) {
    const grown = (type, old) => {
      const made = new type(size);
      if (old) made.set(old);
      return made;
    };
    this.times = grown(Float64Array, this.times);
    this.revisions = grown(Float64Array, this.revisions);
    this.object = grown(Uint32Array, this.object);
    this.user = grown(Uint32Array, this.user);
    this.operation = grown(Uint8Array, this.operation);
    this.state = grown(Uint8Array, this.state);
  }

  /** Add a page of the API; its changes are newest first. */
  add(page) {
    this.stateNames = page.stateNames;
    const object = page.objectNames.map((each) => placed(each.join("/"), each, this.objectPlaces, this.objects));
    const user = page.userNames.map((each) => placed(each, each, this.userPlaces, this.users));
    const count = page.revisions.length;
    if (this.length + count > this.times.length) this.#grow(Math.max(this.times.length * 2, this.length + count));
    for (let each = 0; each < count; each++) {
      const at = this.length + each;
      this.times[at] = page.times[each];
      this.revisions[at] = page.revisions[each];
      this.object[at] = object[page.objects[each]];
      this.user[at] = user[page.users[each]];
      this.operation[at] = page.operations[each];
      this.state[at] = page.states[each];
    }
    this.length += count;
  }

  /** Return the lanes by "object", "namespace", "kind" or "user": [{key, name, rows}], the last changed first. */
  lanes(by) {
    const key = {
      object: (at) => this.object[at], user: (at) => this.users[this.user[at]],
      namespace: (at) => this.objects[this.object[at]][1], kind: (at) => this.objects[this.object[at]][0],
    }[by];
    const found = new Map();
    for (let at = 0; at < this.length; at++) {
      const rows = found.get(key(at));
      if (rows) rows.push(at);
      else found.set(key(at), [at]);
    }
    // Pages come newest first, so the rows of a lane do, too.
    return [...found].map(([each, rows]) => ({ key: each, name: by === "object" ? named(this.objects[each]) : by === "user" ? shortUser(each) : each || "outside of namespaces", rows: Uint32Array.from(rows.reverse()) }))
      .sort((one, other) => this.times[other.rows.at(-1)] - this.times[one.rows.at(-1)]);
  }

  get from() { return this.length ? this.times[this.length - 1] : Date.now() - 3600e3; }

  get to() { return this.length ? this.times[0] : Date.now(); }

  /** Return the time that most changes lie in: a few long before or after them would press them together. */
  span() {
    const few = this.length > MANY ? Math.floor(this.length * FEW) : 0;
    if (!few) return [this.from, this.to];
    const [from, to] = [this.times[this.length - 1 - few], this.times[few]];
    const far = Math.max((to - from) * FAR, 1000);
    return [from - this.from > far ? from : this.from, this.to - to > far ? to : this.to];
  }

  /** Return the place in ``rows`` of the first change after a time. */
  after(rows, time) {
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[rows[middle]] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function placed(key, value, places, values) {
  let place = places.get(key);
  if (place === undefined) {
    place = values.push(value) - 1;
    places.set(key, place);
  }
  return place;
}

const named = ([resource, namespace, name]) => `${namespace ? `${namespace}  ` : ""}${resource.split(".")[0]}/${name}`;

/** Read the changes of a selection into ``data``, page by page, with ``progress`` after each. */
export async function readLanes(data, ns, fields, signal, progress) {
  const [own] = scopes(ns);
  const cluster = { include: ns ? "" : "clusterrevisions" };
  let until = "";
  do {
    const asked = { summary: "lanes", fieldSelector: selector(fields, { "revision.to": until }) };
    let page;
    try {
      page = await get(own.path, { ...asked, ...cluster }, signal, own.lacking);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403 || !cluster.include) throw error;
      cluster.include = "";
      continue;
    }
    data.add(page);
    until = page.next;
    data.truncated = Boolean(until);
    progress();
  } while (until && data.length < MOST);
}
