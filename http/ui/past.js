// The cluster as it was: namespaces, kinds and objects at a moment, and which objects changed since.

import { API, ApiError, Changes, get, scopes, selector } from "./api.js";
import { NOISE } from "./changes.js";

const METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const NOISY = new Set(["events", "events.events.k8s.io", "leases.coordination.k8s.io"]);
const PAGE = 500;
// Kinds that are counted at once.
const TOGETHER = 8;

export const TAG = "tag:";

/** Return the tags as moments, the newest first. */
export async function tags(signal) {
  const found = (await get(`${API}/tags`, {}, signal, "list on tags")).items ?? [];
  return found.sort((one, other) => Number(other.spec.revision) - Number(one.spec.revision)).map((each) => `${TAG}${each.metadata.name}`);
}

/** Return the time of a tag, in milliseconds. */
export async function timeOfTag(moment, signal) {
  const name = encodeURIComponent(moment.slice(TAG.length));
  return Date.parse((await get(`${API}/tags/${name}`, {}, signal, "get on tags")).spec.time);
}

/** The cluster at a moment; "": now. Each answer tells the revision it is of. */
export class Past {
  constructor(at, signal) {
    this.prefix = at ? `history/at/${encodeURIComponent(at)}/` : "";
    this.signal = signal;
  }

  #list(path, query, lacking) {
    return get(`${this.prefix}${path}`, query, this.signal, lacking, undefined, METADATA);
  }

  /** Return the first namespaces and, if it was there, the chosen one, and the revision of the moment. */
  async namespaces(chosen) {
    const list = async (options) => {
      const { items, metadata } = await this.#list("api/v1/namespaces", options, "list on namespaces");
      return { names: (items ?? []).map((each) => each.metadata.name), more: Boolean(metadata.continue), revision: Number(metadata.resourceVersion) };
    };
    const first = await list({ limit: PAGE });
    if (!chosen || !first.more || first.names.includes(chosen)) return first;
    const { names } = await list({ fieldSelector: `metadata.name=${chosen}` });
    return { ...first, names: [...first.names, ...names] };
  }

  /** Return the kinds of a revision that can be listed: [{resource, kind, name, namespaced, root}], each in its first version. */
  async kinds(revision, noise) {
    const answers = await Promise.all(["api", "apis"].map((root) => get(`history/at/${revision}/${root}`, {}, this.signal, "get on /api and /apis", undefined, DISCOVERY)));
    const found = new Map();
    for (const [place, answer] of answers.entries()) {
      for (const { metadata, versions } of answer.items ?? []) {
        const group = metadata?.name ?? "";
        if (group.endsWith("kubechronicle.dev")) continue;
        for (const { version, resources } of versions ?? []) {
          for (const each of resources ?? []) {
            const resource = group ? `${each.resource}.${group}` : each.resource;
            if (!each.verbs.includes("list") || !each.verbs.includes("get") || found.has(resource) || (!noise && NOISY.has(resource))) continue;
            found.set(resource, { resource, kind: each.responseKind.kind, name: each.resource, namespaced: each.scope === "Namespaced", root: place ? `apis/${group}/${version}` : `api/${version}` });
          }
        }
      }
    }
    found.delete("events.events.k8s.io");  // the same objects as events
    found.delete("componentstatuses");  // are not kept
    return [...found.values()].sort((one, other) => (one.resource < other.resource ? -1 : 1));
  }

  #path(kind, namespace) {
    return namespace && kind.namespaced ? `${kind.root}/namespaces/${encodeURIComponent(namespace)}/${kind.name}` : `${kind.root}/${kind.name}`;
  }

  /** Return the number of objects of each kind: a Map by resource, with null for kinds that the visitor may not list. */
  async counts(kinds, namespace) {
    const found = new Map();
    for (let first = 0; first < kinds.length; first += TOGETHER) {
      await Promise.all(kinds.slice(first, first + TOGETHER).map(async (kind) => {
        try {
          const { items, metadata } = await this.#list(this.#path(kind, namespace), { limit: 1 }, `list on ${kind.resource}`);
          found.set(kind.resource, (items ?? []).length + (metadata.remainingItemCount ?? 0));
        } catch (error) {
          if (!(error instanceof ApiError) || ![403, 404, 405, 503].includes(error.code)) throw error;
          found.set(kind.resource, null);
        }
      }));
    }
    return found;
  }

  /** Return an object, null if there was none. */
  async object(kind, namespace, name) {
    const found = await get(`${this.prefix}${this.#path(kind, namespace)}`, { fieldSelector: `metadata.name=${name}` }, this.signal, `list on ${kind.resource}`);
    return found.items?.[0] ?? null;
  }

  /** Return a page of objects of a kind: their names, and the token of the next page. */
  async objects(kind, namespace, token = "") {
    const found = await this.#list(this.#path(kind, namespace), { limit: PAGE, continue: token }, `list on ${kind.resource}`);
    return { names: (found.items ?? []).map((each) => each.metadata.name), token: found.metadata.continue ?? "", left: found.metadata.remainingItemCount ?? 0 };
  }
}

/**
 * Return the changes that match ``fields``, grouped: {groups: [{[by], changes, first, last}]}.
 * ``namespace``: "" for all namespaces and objects outside of them.
 */
export async function groups(by, namespace, fields, { clusterScoped = false, signal }) {
  const asked = { summary: "groups", by: by.join(","), fieldSelector: fields };
  const place = scopes(namespace, { clusterScoped })[0];
  if (namespace || clusterScoped) return get(place.path, asked, signal, place.lacking);
  try {
    return await get(place.path, { ...asked, include: "clusterrevisions" }, signal, place.lacking);
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 403) throw error;
    return get(place.path, asked, signal, place.lacking);
  }
}

/** Return the groups of the changes after a revision; null if they are too many to count. */
export async function changedSince(revision, by, namespace, fields, { noise, clusterScoped = false, signal }) {
  const selected = selector({ "revision.from": String(revision + 1) }, fields, noise ? "" : NOISE);
  try {
    return (await groups([by], namespace, selected, { clusterScoped, signal })).groups;
  } catch (error) {
    if (error instanceof ApiError && error.code === 400) return null;
    throw error;
  }
}

/** Return the newest change of something up to a revision or a time, undefined if there is none. */
export async function newest(namespace, fields, { clusterScoped = false, signal }) {
  const places = scopes(namespace, { clusterScoped });
  return (await new Changes(clusterScoped || fields["object.name"] ? places.slice(0, 1) : places, fields, { signal, page: 1 }).next(1))[0];
}

/** Return the first change after a revision. */
export async function following(namespace, revision, noise, signal) {
  const fields = selector({ "revision.from": String(revision + 1) }, noise ? "" : NOISE);
  return (await new Changes(scopes(namespace), fields, { signal, page: 1, order: "oldest" }).next(1))[0];
}
