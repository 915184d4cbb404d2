// Requests to the API with the rights of the visitor: pages of revisions, counts, and errors in words.

const BASE = new URL("../", location.href.split("#")[0]).pathname;
export const GROUP = "history.kubechronicle.dev";
export const API = `apis/${GROUP}/v1`;
// The key of the masks of Secrets' values: equal values have equal masks on this page, until it is loaded again.
const MASK = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class ApiError extends Error {
  constructor(code, message, lacking) {
    super(message);
    this.code = code;
    this.lacking = lacking;
  }

  /** Return a title and advice for the visitor. */
  explanation() {
    const titles = {
      0: ["The server does not answer", "It may be stopped, or the network or the helper (kubechronicle ui) may be."],
      400: ["The server rejects the request", this.message],
      401: ["The server does not know who you are", "Your credentials are missing, wrong or expired. Log in again, or "
        + "open this page with kubechronicle ui, which uses those of your kubeconfig."],
      403: ["You lack a right", `Missing: ${this.lacking}. The server says: ${this.message}`],
      404: ["There is no such thing", this.message],
      410: ["That part of history is not kept any more", this.message],
      429: ["The server is busy", "Try again in a moment."],
    };
    return titles[this.code] ?? [`The server failed (${this.code})`, this.message];
  }
}

// kubechronicle ui tells with each answer whether it carries out restores, and explains objects.
const offered = { restores: false, explanations: false };
export const offersRestores = () => offered.restores;
export const offersExplanations = () => offered.explanations;

/** Ask kubechronicle ui for the plan of a restore, or with ``plan``, the digest of the shown plan, to carry it out. */
export const askRestore = (asked) => askOwn("restores", asked);

/** Ask kubechronicle ui why an object is as it is. */
export const askExplanation = (asked, signal) => askOwn("explanations", asked, signal);

async function askOwn(path, asked, signal) {
  let answer;
  try {
    answer = await fetch(`${BASE}${path}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), redirect: "error", cache: "no-store", signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, String(error.message ?? error));
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, body.message ?? answer.statusText);
  return body;
}

/** ``accept``: the media type. ``notes``: a set that gets the warnings of the answer. */
export async function get(path, query, signal, lacking, notes, accept = "application/json") {
  const masks = path.startsWith(API) && !query.values ? { mask: MASK } : {};
  const asked = new URLSearchParams(Object.entries({ ...query, ...masks }).filter(([, value]) => value !== "" && value !== undefined));
  let answer;
  try {
    answer = await fetch(`${BASE}${path}?${asked}`, {
      headers: { Accept: accept }, redirect: "error", cache: "no-store", signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, String(error.message ?? error));
  }
  for (const name of Object.keys(offered)) offered[name] ||= answer.headers.get(`kubechronicle-${name}`) === "offered";
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, body.message ?? answer.statusText, lacking);
  for (const [, text] of (answer.headers.get("Warning") ?? "").matchAll(/299 - "((?:[^"\\]|\\.)*)"/g)) notes?.add(text.replace(/\\(.)/g, "$1"));
  return body;
}

/** Escape a value for a field selector. */
export function escaped(value) {
  return value.replace(/[\\,=]/g, (one) => `\\${one}`);
}

/** Join {name: value} and ready-made selectors to one selector. */
export function selector(...parts) {
  const terms = [];
  for (const part of parts) {
    if (typeof part === "string") {
      if (part.trim()) terms.push(part.trim());
      continue;
    }
    for (const [name, value] of Object.entries(part ?? {})) if (value) terms.push(`${name}=${escaped(value)}`);
  }
  return terms.join(",");
}

const path = (namespace) => (namespace ? `${API}/namespaces/${encodeURIComponent(namespace)}/revisions` : `${API}/revisions`);
const right = (verb, resource, namespace) =>
  `${verb} on ${resource} (API group ${GROUP})${namespace ? ` in namespace ${namespace}` : resource === "revisions" ? " in all namespaces" : ""}`;

/** Return the lists of changes: of one kind, of a namespace including itself, or of everything. */
export function scopes(namespace, { clusterScoped = false } = {}) {
  const cluster = { path: `${API}/clusterrevisions`, lacking: right("list", "clusterrevisions") };
  if (clusterScoped) return [cluster];
  const own = { path: path(namespace), lacking: right("list", "revisions", namespace) };
  const itself = namespace ? { "object.resource": "namespaces", "object.name": namespace } : undefined;
  return [own, { ...cluster, fields: itself, optional: true }];
}

/** Return sentences about what a search covered and since when, one for each list that may be read. */
export async function covered(places, fields, signal) {
  const found = [];
  for (const place of places) {
    try {
      const extent = await get(place.path, { summary: "extent", fieldSelector: selector(place.fields, fields) }, signal, place.lacking);
      found.push(place.optional ? `Outside of namespaces: ${extent.message}.` : `${extent.message[0].toUpperCase()}${extent.message.slice(1)}.`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      found.push(place.optional ? `Objects outside of namespaces were not searched. You lack ${place.lacking}.` : "What was searched is not known.");
    }
  }
  return found;
}

/** The changes of several scopes in one order, newest first or (``order``) oldest first, in pages. */
export class Changes {
  /** ``after``: the positions of former changes of these places, after which the changes begin. */
  constructor(places, fields, { content = "", signal, page = 100, order = "newest", verdicts = "", values = "", after = [] } = {}) {
    this.sources = places.map((place, index) => ({ ...place, found: [], token: "", ended: false, after: after[index], position: after[index] }));
    this.query = { content, limit: page, order, verdicts, values };
    this.sign = order === "newest" ? 1 : -1;
    this.fields = fields;
    this.signal = signal;
    this.notes = [];
    this.warnings = new Set();
  }

  async #more(source) {
    // An empty page may not be the last: the server searches a bounded number of changes at once.
    for (let tries = 0; tries < 20 && !source.found.length && !source.ended; tries++) {
      const asked = { ...this.query, fieldSelector: selector(source.fields, this.fields, { "revision.after": source.after }), continue: source.token };
      try {
        const page = await get(source.path, asked, this.signal, source.lacking, this.warnings);
        source.found = page.items ?? [];
        source.position = page.metadata?.resourceVersion ?? source.position;
        source.token = page.metadata?.continue ?? "";
        source.ended = !source.token;
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 403 || !source.optional) throw error;
        this.notes.push(`Changes of objects outside of namespaces are left out. You lack ${source.lacking}.`);
        source.ended = true;
      }
    }
  }

  /** Return at most ``limit`` more. */
  async next(limit) {
    const taken = [];
    while (taken.length < limit) {
      await Promise.all(this.sources.map((source) => this.#more(source)));
      const first = this.sources.filter((source) => source.found.length)
        .reduce((best, source) => (!best || this.sign * inTime(source.found[0], best.found[0]) > 0 ? source : best), null);
      if (!first) break;
      taken.push(first.found.shift());
    }
    return taken;
  }

  get ended() {
    return this.sources.every((source) => source.ended && !source.found.length);
  }

  /** For each place, where its newest change was when it was read: of several databases, the revisions of all. */
  get positions() {
    return this.sources.map((source) => source.position);
  }
}

/** Compare two changes by their times; databases have revisions of their own. */
export const inTime = (one, other) => (one.time === other.time ? number(one) - number(other) : one.time < other.time ? -1 : 1);

export const number = (revision) => Number(revision.metadata.name);

/** Return one revision with the objects before and after. ``values``: "shown" for those of a Secret, which is recorded. */
export function revision(namespace, name, signal, values = "") {
  const resource = namespace ? "revisions" : "clusterrevisions";
  const where = namespace ? path(namespace) : `${API}/clusterrevisions`;
  return get(`${where}/${encodeURIComponent(name)}`, { values }, signal, right("get", resource, namespace));
}

/** Return the revision that marked a deleted object for deletion, undefined if it was deleted at once. */
export async function deletionMark({ object, deletionTimestamp }, signal) {
  if (!deletionTimestamp) return undefined;
  const fields = { "object.resource": resourceName(object), "object.name": object.name, "object.uid": object.uid, changed: "metadata.deletionTimestamp" };
  const places = scopes(object.namespace, { clusterScoped: !object.namespace }).slice(0, 1);
  return (await new Changes(places, fields, { signal, page: 1, order: "oldest" }).next(1))[0];
}

/** Return the number of changes over time; without cluster-scoped objects if the visitor may not list them. */
export async function density(namespace, fields, { by, bucket }, signal) {
  const asked = { summary: "density", by, bucket, fieldSelector: fields };
  const lacking = right("list", "revisions", namespace);
  if (!namespace) {
    try {
      return await get(path(""), { ...asked, include: "clusterrevisions" }, signal, lacking);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403) throw error;
    }
  }
  return get(path(namespace), asked, signal, lacking);
}

// Times within which the page looks for changes to fit a range to, and the width of its look in each.
const FITS = [["24h", "300s"], ["7d", "3600s"], ["30d", "10800s"], ["", ""]];

/** Return when the recent changes begin, in milliseconds: of the last day, or if it has none, of a longer time. NaN: there are none. */
export async function begin(namespace, query, noise, signal) {
  for (const [last, bucket] of FITS) {
    const fields = selector(query, noise, last ? { "time.from": last } : {});
    const found = await density(namespace, fields, { by: "operation", bucket }, signal);
    if (!found.buckets.length) continue;
    const first = found.buckets[0].time;
    if (Date.now() - Date.parse(first) > 3600e3) return Date.parse(first);
    const within = selector(query, noise, { "time.from": first });
    const finer = await density(namespace, within, { by: "operation", bucket: "10s" }, signal);
    return Date.parse(finer.buckets[0]?.time ?? first);
  }
  return NaN;
}

/** Return the newest recorded reads that could show an object: of it, and of all objects of its kind. */
export async function reads(namespace, resource, name, signal) {
  const asked = { limit: 200, fieldSelector: selector({ "object.resource": resource, "object.name": name }) };
  const places = [{ path: `${API}/clusterreads`, lacking: right("list", "clusterreads"), optional: Boolean(namespace) }];
  if (namespace) places.push({ path: `${API}/namespaces/${encodeURIComponent(namespace)}/reads`, lacking: right("list", "reads", namespace) });
  const notes = [];
  const pages = await Promise.all(places.map(async ({ path: where, lacking, optional }) => {
    try {
      return await get(where, asked, signal, lacking);
    } catch (error) {
      if (!optional || !(error instanceof ApiError) || error.code !== 403) throw error;
      notes.push(`Lists of all namespaces are left out. You lack ${lacking}.`);
      return { items: [] };
    }
  }));
  const items = pages.flatMap((page) => page.items ?? []).sort((one, other) => (one.time < other.time ? 1 : -1));
  return { items, notes, more: pages.some((page) => page.metadata?.continue) };
}

/** Return the periods in which reads were recorded; null if the visitor may not list them. */
export async function recordings(signal) {
  try {
    return (await get(`${API}/readrecordings`, {}, signal, right("list", "readrecordings"))).items ?? [];
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 403) throw error;
    return null;
  }
}

/** Return the full name of a resource: deployments.apps */
export function resourceName(object) {
  const [group, version] = (object.apiVersion ?? "").split("/");
  return version ? `${object.resource}.${group}` : object.resource;
}
