// Objects as YAML lines, each with the path of its value. Block style only, names sorted, as printed by kubectl: the log keeps
// the order in which clients and the server wrote them, which is no difference.

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./()@%+$^~;<>=-]*$/;
const UID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const WORDS = /^(true|false|yes|no|on|off|null|y|n|~)$/i;

/** Return [{text, path}] of an object; path is a list of names and indexes. */
export function yamlLines(value) {
  const lines = [];
  if (value !== null && value !== undefined) block(value, "", [], lines);
  return lines;
}

function block(value, indent, path, lines) {
  const isList = Array.isArray(value);
  const entries = isList ? Object.entries(value) : Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  for (const [name, each] of entries) {
    const here = [...path, isList ? Number(name) : name];
    const start = isList ? `${indent}-` : `${indent}${scalar(name)}:`;
    if (each === null || typeof each !== "object" || !Object.keys(each).length) leaf(start, each, indent, here, lines);
    else if (isList) item(start, each, indent, here, lines);
    else {
      lines.push({ text: start, path: here });
      block(each, Array.isArray(each) ? indent : `${indent}  `, here, lines);
    }
  }
}

// "- name: x" on the line of the dash.
function item(start, value, indent, path, lines) {
  const inner = [];
  block(value, `${indent}  `, path, inner);
  inner[0].text = `${start} ${inner[0].text.slice(indent.length + 2)}`;
  for (const line of inner) lines.push(line);
}

function leaf(start, value, indent, path, lines) {
  if (typeof value === "string" && value.includes("\n") && !/[^\n\x20-\x7e\xa0-\uffff]/.test(value) && !/^\s|\s\n/.test(value)) {
    const end = value.endsWith("\n") ? "" : "-";
    lines.push({ text: `${start} |${end}`, path });
    for (const line of value.replace(/\n$/, "").split("\n")) lines.push({ text: `${indent}  ${line}`, path });
  } else lines.push({ text: `${start} ${scalar(value)}`, path });
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = PLAIN.test(value) || UID.test(value) || /^[A-Za-z][A-Za-z0-9_./ ()@%+$^~;<>=-]*[A-Za-z0-9_./)]$/.test(value)
    || /^[A-Za-z][A-Za-z0-9_.\/-]*(:[A-Za-z0-9_.\/@-]+)+$/.test(value);
  return plain && !WORDS.test(value) ? value : JSON.stringify(value);
}

/** Return the object without managedFields. */
export function trimmed(object, keepManaged) {
  if (!object || keepManaged || !object.metadata?.managedFields) return object;
  const { managedFields, ...metadata } = object.metadata;
  return { ...object, metadata };
}
