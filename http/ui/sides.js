// Two states of an object side by side, as YAML: the lines near a difference, or all lines.

import { count, h } from "./dom.js";
import { rows } from "./diff.js";
import { trimmed, yamlLines } from "./yaml.js";

const CONTEXT = 3;

/**
 * ``before``, ``after``: objects, or null. ``left``, ``right``: their titles. ``all``: show all lines at first.
 * ``authors``: resolves to {at, label}: the change that last set a path of ``after``, and what the margin says of it.
 */
export function sides(before, after, left, right, { all = false, authors = null } = {}) {
  const whole = { managed: false, all, blame: false };
  let authorAt = null;
  const plain = (object, other) => (whole.managed ? object : withoutBookkeeping(trimmed(object, false), other));
  const element = h("div.sides");
  function draw() {
    const [oldLines, nowLines] = [plain(before, after), plain(after, before)].map((each) => yamlLines(each));
    const [old, now] = [oldLines, nowLines].map((lines) => lines.map((line) => line.text));
    const margin = whole.blame && authorAt;
    let named;
    const found = rows(old, now);
    const kept = whole.all ? found.map(() => true) : nearby(found);
    const body = h("tbody");
    let skipped = 0;
    const flush = () => {
      if (skipped) body.append(h("tr.skipped", {}, h("td", { colspan: margin ? "5" : "4" }, `… ${count(skipped, "equal line")}`)));
      skipped = 0;
    };
    found.forEach((row, place) => {
      if (!kept[place]) { skipped++; return; }
      flush();
      body.append(h(`tr.${row.kind}`, {},
        h("td.number", {}, row.left === undefined ? "" : String(row.left + 1)), h("td.left", {}, row.left === undefined ? "" : h("code", {}, old[row.left])),
        h("td.number", {}, row.right === undefined ? "" : String(row.right + 1)), h("td.right", {}, row.right === undefined ? "" : h("code", {}, now[row.right])),
        margin && h("td.author", {}, row.right === undefined ? "" : author(nowLines[row.right].path))));
    });
    flush();

    // Named once for each run of lines.
    function author(path) {
      const by = margin.at(path);
      if (by === named) return "";
      named = by;
      return by ? margin.label(by) : h("span.faint", {}, "earlier than is shown");
    }
    const equal = found.every((row) => row.kind === "same");
    element.replaceChildren(
      h("div.options", {}, option("all", "All lines"), option("managed", "Bookkeeping"), authors && option("blame", "Who set it")),
      equal ? h("p.empty", {}, "They are the same.") : "",
      h(`table.diff${margin ? ".with-authors" : ""}`, {}, h("caption.unseen", {}, "What differs"), h("colgroup", {}, h("col.n"), h("col"), h("col.n"), h("col"), margin && h("col.a")),
        h("thead", {}, h("tr", {}, h("th", { colspan: "2", scope: "col" }, left), h("th", { colspan: "2", scope: "col" }, right), margin && h("th", { scope: "col" }, "Last set by"))), body));
  }
  const option = (name, text) => h("label.check", {}, h("input", { type: "checkbox", name, checked: whole[name], onchange: (event) => {
    whole[name] = event.target.checked;
    if (name === "blame" && whole.blame && !authorAt) return void named(event.target);
    draw();
    element.querySelector(`input[name=${name}]`).focus();
  } }), text);
  async function named(input) {
    input.disabled = true;
    authorAt = await authors();
    draw();
    element.querySelector("input[name=blame]").focus();
  }
  draw();
  return element;
}

// An object without its generation, which follows from other changes, and the uid, unless it is that of another object.
function withoutBookkeeping(object, other) {
  if (!object?.metadata) return object;
  const { generation, ...metadata } = object.metadata;
  if (!other || other.metadata?.uid === metadata.uid) delete metadata.uid;
  return { ...object, metadata };
}

// Rows within a few lines of a difference.
function nearby(found) {
  const kept = found.map(() => false);
  found.forEach((row, place) => {
    if (row.kind !== "same") for (let near = place - CONTEXT; near <= place + CONTEXT; near++) if (near in kept) kept[near] = true;
  });
  return kept;
}
