// Who is behind a change of a controller: the first cause, with the chain that leads to it.

import { ApiError, get, scopes } from "./api.js";
import { user } from "./changes.js";
import { h } from "./dom.js";
import { isController, shortUser, thing } from "./words.js";

const TOGETHER = 6; // requests at once

/** Return the chain of causes of a revision, itself first; [] if it is not known. */
export async function causesOf(revision, signal) {
  const { namespace } = revision.object;
  const [place] = scopes(namespace, { clusterScoped: !namespace });
  try {
    return (await get(place.path, { summary: "causes", fieldSelector: `metadata.name=${revision.metadata.name}` }, signal, place.lacking)).links ?? [];
  } catch (error) {
    if (error instanceof ApiError) return [];
    throw error;
  }
}

/**
 * Return the first cause of each revision, by its name: itself for changes of people; undefined if none is known.
 * Changes with one recorded cause share one request.
 */
export async function originsOf(revisions, signal) {
  const found = new Map();
  const asked = new Map();
  for (const each of revisions) {
    if (!isController(each.who.username ?? "") && !each.deletionTimestamp && !each.cause) found.set(each.metadata.name, each);
    else {
      const key = each.cause ? `cause-${each.cause}` : each.metadata.name;
      asked.set(key, [...asked.get(key) ?? [], each]);
    }
  }
  const groups = [...asked.values()];
  for (let first = 0; first < groups.length; first += TOGETHER) {
    await Promise.all(groups.slice(first, first + TOGETHER).map(async (group) => {
      const chain = await causesOf(group[0], signal);
      const root = chain.at(-1);
      for (const each of group) found.set(each.metadata.name, !root || (root === chain[0] && isController(root.who.username ?? "")) ? undefined : root);
    }));
  }
  return found;
}

/** Tell whether a change began or ended a deletion. */
export const isDeletion = (revision) => revision.operation === "Delete" || (revision.request?.verb ?? "").startsWith("delete");

/** Whom to ask: the person or program behind a change, and what carried it out. */
export function behind(revision, origin) {
  const own = revision.who.username ?? "";
  if (!origin || (origin.who.username === own && origin.object.uid === revision.object.uid)) return user(revision);
  const what = origin.object.uid === revision.object.uid ? "" : [isDeletion(origin) ? "deleted " : "changed ", thing(origin)];
  return [user(origin), " ", what, own !== origin.who.username && h("small", {}, isController(own) ? ` carried out by ${shortUser(own)}` : "")];
}
