// Why an object is as it is, as a graph: from its symptoms, over the changes that may explain them and their causes, to the
// people behind them. kubechronicle ui explains as `kubectl chronicle why` does; without it, there are the causes of the
// object's last change alone.

import { breakable, count, h, s, when } from "./dom.js";
import { askExplanation, offersExplanations } from "./api.js";
import { summary } from "./changes.js";
import { icon } from "./icons.js";
import { causesOf } from "./origins.js";
import { actionOf, deed, isController, isProgram, place, thing, userName, value } from "./words.js";

const [WIDE, GAP, BELOW] = [236, 46, 18];
const MOST = 8; // changes that are explained
const NARROW = 720;

/** Return the elements of the panel. ``last``: the newest change of the object that is no report. ApiError. */
export async function why(namespace, resource, name, last, signal) {
  const found = offersExplanations() ? await askExplanation({ words: [`${resource}/${name}`], namespace, limit: MOST }, signal)
    : { symptoms: [], events: [], notSearched: {}, suspects: [{ object: `${resource}/${name}`, relation: "its last change", links: await causesOf(last, signal) }] };
  const graph = graphOf(found, `${resource}/${name}`);
  return [
    h("ul.symptoms", {}, found.symptoms.map((each) => h("li.warned", {}, breakable(`${each.object}: ${each.text}`), each.since ? [" since ", when(each.since)] : "")),
      found.events.map((each) => h("li", {}, `Event ${each.reason ?? ""}: ${each.message ?? ""}`, each.count > 1 ? ` (×${each.count})` : ""))),
    !found.symptoms.length && !found.deletion && offersExplanations() ? h("p.faint", {}, "Its status tells of no problem. These are the last changes of it and of the objects that it depends on.") : "",
    graph.nodes.size > 1 ? drawn(graph, signal) : h("p.empty", {}, "No change explains it."),
    Object.entries(found.notSearched).map(([what, reason]) => h("p.note", {}, `Not searched: ${what}: ${reason}`)),
    offersExplanations() ? "" : h("p.note", {}, "Opened by kubectl chronicle ui, this page also searches the objects that it depends on."),
  ];
}

/** Nodes by id, each with its depth, and edges [from, to, text, inferred]. Changes that several chains share are one node. */
function graphOf(found, name) {
  const nodes = new Map([["subject", { depth: 0, name }]]);
  const edges = [];
  const chains = [...found.deletion ? [{ ...found.deletion, relation: "it was deleted" }] : [], ...found.suspects];
  for (const { links, relation } of chains) {
    let from = "subject";
    let text = relation;
    let inferred = false;
    links.forEach((link, index) => {
      const id = link.metadata.name;
      const known = nodes.get(id);
      const depth = Math.max(known?.depth ?? 0, index + 1);
      nodes.set(id, { depth, link: known?.link ?? link, last: index === links.length - 1 });
      if (!edges.some(([one, other]) => one === from && other === id)) edges.push([from, id, text, inferred]);
      [from, text, inferred] = [id, "because", link.known === "inferred"];
    });
  }
  return { nodes, edges };
}

function drawn({ nodes, edges }, signal) {
  const boxes = new Map([...nodes].map(([id, node]) => [id, box(id, node, edges)]));
  const picture = s("svg", { class: "edges", "aria-hidden": "true" });
  const list = h("ol.graph-nodes", {}, [...nodes].sort(([, one], [, other]) => one.depth - other.depth).map(([id]) => boxes.get(id)));
  const graph = h("div.graph", { tabindex: "0", role: "region", "aria-label": `Causes: ${count(nodes.size - 1, "change")}` }, picture, list);
  const layout = () => arrange(graph, nodes, edges, boxes, picture);
  const watcher = new ResizeObserver(layout);
  watcher.observe(graph);
  signal.addEventListener("abort", () => watcher.disconnect());
  return graph;
}

function box(id, { link, name, last }, edges) {
  if (!link) return h("li.node.subject", { "data-id": id }, h("b", {}, breakable(name)));
  const text = edges.find(([, to]) => to === id)?.[2];
  const [verb, picture] = deed({ revision: link, action: actionOf(link) });
  const who = link.who.username ?? "";
  const person = last && !isController(who);
  return h(`li.node${person ? ".person" : ""}`, { "data-id": id },
    h("p.relation", {}, text), h("p", {}, icon(isProgram(who) ? "program" : person ? "person" : picture), " ", userName(link.who), ` ${verb} `, thing(link), place(link), " ", value(link)),
    link.operation === "Update" && !value(link) ? h("p.small", {}, summary(link)) : "", link.reason && h("p.why", {}, "“", breakable(link.reason), "”"), h("p.small", {}, when(link.time)));
}

/** Place the boxes in columns by depth, each near the one that it explains, and draw the edges. */
function arrange(graph, nodes, edges, boxes, picture) {
  const narrow = graph.clientWidth < NARROW;
  graph.classList.toggle("narrow-graph", narrow);
  if (narrow) {
    for (const [id, { depth }] of nodes) boxes.get(id).style.cssText = `margin-left: ${Math.min(depth, 5) * 12}px`;
    return;
  }
  const places = new Map();
  const bottoms = [];
  for (const [id, { depth }] of [...nodes].sort(([, one], [, other]) => one.depth - other.depth)) {
    const element = boxes.get(id);
    const near = edges.filter(([, to]) => to === id).map(([from]) => places.get(from)?.y ?? 0);
    const y = Math.max(bottoms[depth] ?? 0, near.length ? Math.min(...near) : 0);
    element.style.cssText = `left: ${depth * (WIDE + GAP)}px; top: ${y}px; width: ${WIDE}px`;
    places.set(id, { x: depth * (WIDE + GAP), y, high: element.offsetHeight });
    bottoms[depth] = y + element.offsetHeight + BELOW;
  }
  const [wide, high] = [bottoms.length * (WIDE + GAP), Math.max(...bottoms.filter(Boolean))];
  picture.setAttribute("width", wide);
  picture.setAttribute("height", high);
  picture.parentNode.querySelector(".graph-nodes").style.height = `${high}px`;
  picture.replaceChildren(...edges.map(([from, to, , inferred]) => {
    const [one, other] = [places.get(from), places.get(to)];
    const [x1, y1, x2, y2] = [one.x + WIDE, one.y + Math.min(28, one.high / 2), other.x, other.y + Math.min(28, other.high / 2)];
    return s("path", { class: inferred ? "edge inferred" : "edge", d: `M${x1} ${y1}C${x1 + GAP * 0.6} ${y1} ${x2 - GAP * 0.6} ${y2} ${x2} ${y2}` });
  }));
}
