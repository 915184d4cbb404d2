// Changes in the words of people: who did what to which object.

import { breakable, h } from "./dom.js";
import { resourceName } from "./api.js";
import { link } from "./changes.js";

// The users that react to changes of others (api/explaining/causes.py).
const CONTROLLERS = ["system:kube-", "system:node:", "system:apiserver", "system:serviceaccount:kube-system:"];
const ACCOUNT = "system:serviceaccount:";
const VERBS = { create: "created", update: "changed", patch: "changed", apply: "applied", delete: "deleted", deletecollection: "deleted", evict: "evicted", bind: "bound" };
const SENTENCES = [
  [/(^|\.)image$/, "set the image of", "image"],
  [/^spec\.replicas$/, "scaled", "scale"],
  [/restartedAt\]?$/, "restarted", "update"],
  [/^spec\.unschedulable$/, "cordoned or uncordoned", "update"],
];
const RIGHTS = new Set(["roles", "rolebindings", "clusterroles", "clusterrolebindings"]);

export const isController = (user) => CONTROLLERS.some((prefix) => user.startsWith(prefix));
export const isProgram = (user) => user.startsWith("system:");

/** A short name: jane for jane@example.com, ci/deployer for a service account. */
export function shortUser(user) {
  if (user.startsWith(ACCOUNT)) return user.slice(ACCOUNT.length).replace("kube-system:", "").replace(":", "/");
  if (user.startsWith("system:node:")) return `kubelet of ${user.slice("system:node:".length)}`;
  return user.replace(/^system:/, "").split("@")[0] || "unknown";
}

/** The user, short, with the whole name as its title. */
export function userName({ username = "", impersonator }) {
  return [h("b.user", { title: username }, breakable(shortUser(username))), impersonator && h("small", { title: impersonator }, " (by ", breakable(shortUser(impersonator)), ")")];
}

/** The action of a request, as the server names it (api/history/cells.py): a binding binds, an eviction evicts. */
export function actionOf({ request, operation }) {
  const verb = request?.verb || operation.toLowerCase();
  const last = (request?.uri ?? "").split("?")[0].split("/").at(-1);
  return verb === "create" ? { eviction: "evict", binding: "bind" }[last] ?? verb : verb;
}

/** Return [verb, icon] of a change. */
export function deed({ revision, action }) {
  const { operation, changed = [], object } = revision;
  if (operation === "Update" && !["evict", "bind"].includes(action)) {
    if (action === "delete" || action === "deletecollection") return ["asked to delete", "delete"];
    for (const [field, verb, icon] of SENTENCES) if (changed.some((each) => field.test(each))) return [verb, icon];
  }
  if (RIGHTS.has(object.resource) && operation !== "Delete") return [operation === "Create" ? "granted rights by" : "changed the rights of", "rights"];
  return [VERBS[action] ?? `${operation.toLowerCase()}d`, operation.toLowerCase()];
}

/** Kind and name, with a link. */
export function thing(revision) {
  const { object } = revision;
  return h("a.object", { href: link(revision) }, object.kind || object.resource, " ", h("b", {}, breakable(object.name)));
}

export const place = ({ object }) => object.namespace && [" in ", h("span.space", {}, breakable(object.namespace))];

/** The value that a change is about: the new image, the replicas. */
export function value({ changed = [], summary = "" }) {
  if (!SENTENCES.slice(0, 2).some(([field]) => changed.some((each) => field.test(each)))) return "";
  const found = summary.match(/(?:^|[.\], ])(?:image|replicas): (\S+) → (\S+?)(?:,|$)/);
  if (!found) return "";
  const [before, after] = withoutRegistry(found[1], found[2]);
  return h("code.value", { title: `${found[1]} → ${found[2]}` }, breakable(before), h("span.faint", {}, " → "), breakable(after));
}

// Two images of one place differ in what follows it.
function withoutRegistry(before, after) {
  const place = before.slice(0, before.lastIndexOf("/") + 1);
  return place && after.startsWith(place) ? [before.slice(place.length), after.slice(place.length)] : [before, after];
}

/** The kind of so many objects: Pod, Pods, NetworkPolicies, Ingresses, Endpoints. */
export function kindOf({ kind, resource }, number) {
  const name = kind || resource;
  if (number === 1 || /[^s]s$/.test(name)) return name;
  return name.endsWith("y") ? `${name.slice(0, -1)}ies` : /(s|x|ch)$/.test(name) ? `${name}es` : `${name}s`;
}

export const fullName = ({ object }) => `${object.namespace ?? ""}/${resourceName(object)}/${object.name}`;
