// Facets: the users, kinds, namespaces and operations of the changes that a search finds, each with its number. And
// completion: the same values of the last weeks, offered while a visitor types.

import { h, loading } from "./dom.js";
import { ApiError } from "./api.js";
import { groups, tags } from "./past.js";

const FACETS = [["user", "Users", "user"], ["resource", "Kinds", "resource"], ["namespace", "Namespaces", "ns"], ["operation", "Operations", "operation"]];
const SHOWN = 6;
const COMPLETED = { user: "user", resource: "resource", ns: "namespace" };
const RECENT = "30d";
const MOST = 500;
const TAGS = "tags";

/** Return a section that fills itself. ``pick(name, value)``: search for one of them. */
export function facets(namespace, fields, pick, signal) {
  const element = h("section.facets", { "aria-label": "Facets", "aria-busy": "true" }, loading(3));
  const shown = async ([by, title, name]) => {
    const found = (await groups([by], namespace, fields, { signal })).groups;
    const values = found.filter((each) => each[by]).slice(0, SHOWN);
    return values.length < 2 ? null : h("div", {}, h("h2", {}, title), h("ul", {}, values.map((each) => h("li", {},
      h("button.name", { type: "button", onclick: () => pick(name, each[by]) }, each[by], " ", h("span.faint", {}, each.changes.toLocaleString("en")))))),
    found.length > SHOWN ? h("p.faint", {}, `and ${(found.length - SHOWN).toLocaleString("en")} others`) : "");
  };
  Promise.all(FACETS.map(shown)).then((found) => element.replaceChildren(...found.filter(Boolean)), (error) => {
    // Too many changes to count, or fields that need the objects: the list has them all the same.
    if (error.name !== "AbortError" && !(error instanceof ApiError)) console.error(error);
    element.replaceChildren();
  }).then(() => element.removeAttribute("aria-busy"));
  return element;
}

const known = new Map();

/** Offer known values for the inputs of a form, once one of them has the focus. */
export function complete(form) {
  for (const [name, by] of [...Object.entries(COMPLETED), ["at", TAGS]]) {
    const input = form.elements[name];
    if (!input) continue;
    input.addEventListener("focus", async () => {
      if (!known.has(by)) known.set(by, (by === TAGS ? tags() : groups([by], "", `time.from=${RECENT}`, {}).then((found) => found.groups.map((each) => each[by]))).catch(() => []));
      const values = (await known.get(by)).filter(Boolean).slice(0, MOST).sort();
      const list = h("datalist", { id: `known-${name}` }, values.map((value) => h("option", { value })));
      form.querySelector(`#known-${name}`)?.remove();
      form.append(list);
      input.setAttribute("list", list.id);
    }, { once: true });
  }
}
