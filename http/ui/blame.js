// The last author of each field: states are compared from the oldest on; an unchanged field keeps its author.

// Keys that identify list items, as on the server: the first one that all items have with distinct values.
const NAMING = [["name"], ["type"], ["key"], ["containerPort", "protocol"], ["port", "protocol"], ["containerPort"],
  ["port"], ["mountPath"], ["devicePath"], ["uid"], ["ip"], ["topologyKey", "whenUnsatisfiable"], ["topologyKey"]];

/** Takes the states of an object one by one, the oldest first, and keeps the last two: the memory does not grow with
 *  the history. */
export class Blame {
  object = null; // the last state; null if deleted or before the first state
  tree = null; // its tree: {by, under: Map of name or index to tree}

  next(object, by) {
    this.tree = object === null ? null : follow(this.object ?? undefined, object, this.tree, by);
    this.object = object;
  }
}

function follow(old, value, tree, by) {
  if (tree && same(old, value)) return tree;
  if (value === null || typeof value !== "object") return { by };
  const isList = Array.isArray(value);
  const comparable = tree?.under && old !== null && typeof old === "object" && Array.isArray(old) === isList;
  const before = comparable ? matching(old, value, isList) : () => undefined;
  const under = new Map();
  for (const [name, each] of Object.entries(value)) {
    const key = isList ? Number(name) : name;
    const was = before(key);
    const known = was === undefined ? null : tree.under.get(was);
    under.set(key, follow(was === undefined ? undefined : old[was], each, known, by));
  }
  return { by: comparable ? tree.by : by, under };
}

// Return the former place of an item or member.
function matching(old, value, isList) {
  if (!isList) return (name) => (Object.hasOwn(old, name) ? name : undefined);
  const keys = NAMING.find((names) => [old, value].every((list) => named(list, names)));
  if (keys) {
    const places = new Map(old.map((item, place) => [called(item, keys), place]));
    return (place) => places.get(called(value[place], keys));
  }
  const texts = new Map(old.map((item, place) => [JSON.stringify(item), place]));
  return (place) => texts.get(JSON.stringify(value[place])) ?? (place < old.length && old.length === value.length ? place : undefined);
}

const called = (item, keys) => JSON.stringify(keys.map((key) => item[key]));

function named(list, keys) {
  const isNamed = (item) => item !== null && typeof item === "object"
    && keys.every((key) => typeof item[key] === "string" || typeof item[key] === "number");
  return list.every(isNamed) && new Set(list.map((item) => called(item, keys))).size === list.length;
}

function same(one, other) {
  if (one === other) return true;
  if (one === null || other === null || typeof one !== "object" || typeof other !== "object") return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length
    && names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

/** Return the author of the value at the path. */
export function authorOf(tree, path) {
  let here = tree;
  for (const part of path) {
    const next = here?.under?.get(part);
    if (!next) break;
    here = next;
  }
  return here?.by;
}
