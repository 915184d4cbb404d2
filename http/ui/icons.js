// Icons: strokes in a square of 24, in the colour of the text. Drawn for this page.

import { s } from "./dom.js";

const PATHS = {
  home: "M4 11 12 4l8 7v9h-5v-6H9v6H4z",
  lanes: "M4 6h9M4 12h16M4 18h6M17 6h3M14 18h6",
  changes: "M5 20V10M10 20V4M15 20v-7M20 20V8",
  cluster: "M12 3 20 7.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  incident: "M12 3 22 20H2zM12 10v4M12 17v.5",
  deleted: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  policies: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM9 12l2 2 4-4",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c1-5 4-7 8-7s7 2 8 7",
  program: "M5 8h14v11H5zM12 8V4M9 13v1M15 13v1M2 12v4M22 12v4",
  create: "M12 5v14M5 12h14",
  update: "M4 20h4L19 9l-4-4L4 16z",
  delete: "M6 6l12 12M18 6 6 18",
  image: "M12 3 20 7.5v9L12 21l-8-4.5v-9zM8 5.5l8 4.5v5",
  scale: "M4 20 20 4M14 4h6v6M10 20H4v-6",
  rights: "M8 14a4 4 0 1 1 0-8 4 4 0 0 1 0 8zM12 10h9v4M17 10v3",
  many: "M4 5h12v4H4zM4 12h12v4H4zM7 19h12M19 8v11",
};

/** An icon of the page; screen readers pass over it. */
export function icon(name) {
  const picture = s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, s("path", { d: PATHS[name] ?? PATHS.update }));
  return picture;
}
