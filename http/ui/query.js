// The search box: words of people become selectors of the API.
//
//   alice deleted                    who.username=alice@example.com, operation=Delete
//   nginx:1.27                       changes that put this text into an object, or removed it
//   deployment web in shop since 2h  object.resource=deployment, object.name=web*, the namespace shop, time.from=2h

import { groups } from "./past.js";

const OPERATIONS = { deleted: "Delete", deletes: "Delete", removed: "Delete", created: "Create", added: "Create", changed: "Update", updated: "Update", edited: "Update" };
const FIELDS = { scaled: "spec.replicas", replicas: "spec.replicas", image: "spec.template.spec.containers.image", images: "spec.template.spec.containers.image" };
const KINDS = new Set(["pod", "deployment", "service", "configmap", "secret", "namespace", "node", "job", "cronjob", "statefulset", "daemonset", "replicaset", "ingress",
  "role", "rolebinding", "clusterrole", "clusterrolebinding", "serviceaccount", "persistentvolume", "persistentvolumeclaim", "networkpolicy", "resourcequota", "limitrange", "lease", "event",
  "customresourcedefinition"]);
const FILLERS = new Set(["who", "what", "has", "have", "was", "were", "the", "of", "a", "an", "did", "happened", "to", "on", "and", "changes"]);
const AGE = /^\d+[smhdw]$/;
const DATE = /^\d{4}-\d\d-\d\d(T[\d:.]+Z?)?$/;
const CLOCK = /^([01]?\d|2[0-3]):[0-5]\d$/;
const KNOWN = "30d";

/** Split into words; a quoted text is one. */
function tokens(text) {
  return [...text.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, word]) => ({ word: quoted ?? word, quoted: quoted !== undefined }));
}

const midnight = (daysAgo) => new Date(Math.floor(Date.now() / 86400e3 - daysAgo) * 86400e3).toISOString();

/** Return the moment that a word names, undefined for none. */
function moment(word) {
  if (AGE.test(word)) return word;
  if (word === "today") return midnight(0);
  if (word === "yesterday") return midnight(1);
  if (word === "hour") return "1h";
  if (word === "day") return "24h";
  if (word === "week") return "7d";
  if (DATE.test(word)) return word.length === 10 ? `${word}T00:00:00Z` : word.endsWith("Z") ? word : `${word}Z`;
  if (CLOCK.test(word)) return `${midnight(0).slice(0, 11)}${word.padStart(5, "0")}:00Z`;
  return undefined;
}

const singular = (word) => (KINDS.has(word) ? word : word.endsWith("ies") && KINDS.has(`${word.slice(0, -3)}y`) ? `${word.slice(0, -3)}y`
  : KINDS.has(word.replace(/e?s$/, "")) ? word.replace(/e?s$/, "") : KINDS.has(word.replace(/s$/, "")) ? word.replace(/s$/, "") : "");

/**
 * Return {fields, ns, text, parts, named}: field selectors, the namespace, a text to look for, and what was understood as
 * [[words, meaning]]. ``known``: {users, namespaces} of the last weeks.
 */
export function understood(text, known) {
  const found = { fields: {}, ns: "", text: "", parts: [], named: false };
  const note = (word, meaning) => found.parts.push([word, meaning]);
  const all = tokens(text);
  for (let at = 0; at < all.length; at++) {
    const { word, quoted } = all[at];
    const low = word.toLowerCase();
    const next = all[at + 1]?.word;
    if (quoted) [found.text] = [word, note(word, "text in the object")];
    else if (/^[\w.]+!?=/.test(word)) {
      const [, name, not, value] = word.match(/^([\w.]+)(!?)=(.*)$/);
      found.fields[not ? `${name}!` : name] = value;
      note(word, "selector");
    } else if (OPERATIONS[low]) [found.fields.operation] = [OPERATIONS[low], note(word, "operation")];
    else if (FIELDS[low]) [found.fields.changed] = [FIELDS[low], note(word, "field")];
    else if ((low === "in" || low === "namespace") && next && !moment(next)) [found.ns] = [next, note(next, "namespace"), at++];
    else if (low === "by" && next) [found.fields["who.username"]] = [userOf(next, known) ?? `${next}*`, note(next, "user"), at++];
    else if (["since", "last", "from", "after"].includes(low) && next && moment(next)) [found.fields["time.from"]] = [moment(next), note(next, "since"), at++];
    else if (["until", "before"].includes(low) && next && moment(next)) [found.fields["time.to"]] = [moment(next), note(next, "until"), at++];
    else if (moment(low)) [found.fields["time.from"]] = [moment(low), note(word, "since")];
    else if (FILLERS.has(low)) continue;
    else if (/[:/]/.test(word) && !word.startsWith("system:")) [found.text] = [word, note(word, "text in the object")];
    else if (singular(low) && !found.fields["object.resource"]) [found.fields["object.resource"], found.named] = [singular(low), true, note(word, "kind")];
    else if (userOf(word, known)) [found.fields["who.username"]] = [userOf(word, known), note(word, "user")];
    else if (known.namespaces.includes(word) && !found.ns) [found.ns] = [word, note(word, "namespace")];
    else [found.fields["object.name"], found.named] = [word.endsWith("*") ? word : `${word}*`, true, note(word, "name")];
  }
  return found;
}

/** Return the user that a word names: the whole name, its beginning before "@", or that of a service account. */
function userOf(word, { users }) {
  return users.find((each) => each === word) ?? users.find((each) => each.split("@")[0] === word)
    ?? users.find((each) => each.startsWith("system:") && each.split(":").at(-1) === word);
}

/** Return the users and namespaces of the last weeks; none if the visitor may not count them. */
export async function knownNames(signal) {
  const names = (by) => groups([by], "", `time.from=${KNOWN}`, { signal }).then((found) => found.groups.map((each) => each[by]).filter(Boolean), (error) => {
    if (error.name === "AbortError") throw error;
    return [];
  });
  const [users, namespaces] = await Promise.all([names("user"), names("namespace")]);
  return { users, namespaces };
}
