// An address that names no page.

import { breakable, h } from "./dom.js";

export function missing({ path: [path] }) {
  return { title: "There is no such page", element: h("div.page.narrow", {}, h("h1", {}, "There is no such page"),
    h("p", {}, "Nothing is at ", h("code", {}, breakable(`#/${path}`)), ". The address may be cut off, or from another version."),
    h("p", {}, h("a", { href: "#/happened" }, "What happened"), " · ", h("a", { href: "#/search" }, "Search"))) };
}
