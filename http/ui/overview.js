// What can be said of a namespace at a moment while no object is chosen: what differs from now, and what
// happened before: in the whole cluster, if nothing did here.

import { breakable, count, h } from "./dom.js";
import { Activity, folded } from "./activity.js";
import { groups } from "./past.js";
import { ApiError, selector } from "./api.js";
import { NOISE } from "./changes.js";
import { row } from "./rows.js";

const ROWS = 12;
const DIFFERENT = 60; // objects that differ, by name

/** Return the elements. ``revision``: of the moment; ``past``: it is not the present; ``address``: makes links to objects. */
export async function overview({ namespace, outside, revision, past, noise, address, signal }) {
  const options = { clusterScoped: outside, signal };
  const happened = (asked) => new Activity({ fields: { "revision.to": String(revision) }, ...asked }, signal).page().catch((error) => {
    if (!(error instanceof ApiError)) throw error;
    return [];
  });
  const [different, rows] = await Promise.all([past ? changed(namespace, revision, noise, options) : null, happened({ ns: namespace, clusterScoped: outside })]);
  const others = rows.length ? [] : await happened({ ns: "" });
  return [
    past ? h("section.different", { "aria-label": "Changed since then" }, h("h2", {}, "Changed since then"), different === null ? h("p.note", {}, "There are too many changes since then to name the objects.")
      : different.length ? h("ul.names", {}, different.slice(0, DIFFERENT).map((each) => h("li", {}, h("a", { href: address(each) }, h("span.faint", {}, `${each.resource.split(".")[0]}/`), breakable(each.name)), " ", h("small", {}, count(each.changes, "change")))))
        : h("p.faint", {}, "Nothing has changed since then."),
    different?.length > DIFFERENT ? h("p.faint", {}, `and ${count(different.length - DIFFERENT, "other")}`) : "") : "",
    h("section", { "aria-label": "What happened before" }, h("h2", {}, past ? "What happened before this moment" : "What happened last"),
      rows.length ? h("ol.rows", {}, folded(rows).slice(0, ROWS).map(row)) : h("p.faint", {}, "People and their programs changed nothing here.")),
    others.length ? h("section", { "aria-label": "Elsewhere" }, h("h2", {}, "Elsewhere in the cluster"), h("ol.rows", {}, folded(others).slice(0, ROWS).map(row))) : "",
  ];
}

async function changed(namespace, revision, noise, options) {
  try {
    return (await groups(["resource", "name"], namespace, selector({ "revision.from": String(revision + 1) }, noise ? "" : NOISE), options)).groups;
  } catch (error) {
    if (error instanceof ApiError && error.code === 400) return null;
    throw error;
  }
}
