// A slider over the revisions of an object: each is a mark at its time, and the handle steps from one to the next.

import { h, s, timeText } from "./dom.js";
import { shortUser } from "./words.js";

const [WIDE, HIGH] = [1000, 26];

/**
 * ``known``: the revisions, newest first. ``chosen``: the name of the one at the handle.
 * ``slid(revision)``: while the handle moves; ``settled(revision)``: when it is let go.
 */
export function scrubber(known, chosen, slid, settled) {
  const ordered = [...known].reverse();
  const first = Date.parse(ordered[0].time);
  const span = Math.max(Date.parse(ordered.at(-1).time) - first, 1);
  // Times may be seconds and years apart: half of the place is that of the time, half that of the number.
  const x = (place) => (((Date.parse(ordered[place].time) - first) / span) * 0.5 + (place / Math.max(ordered.length - 1, 1)) * 0.5) * (WIDE - 8) + 4;
  const hand = s("rect", { class: "hand", y: 0, width: 3, height: HIGH });
  const picture = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...ordered.map((each, place) => s("rect", { class: `mark ${each.operation.toLowerCase()}`, x: x(place), y: 5, width: 2.5, height: HIGH - 10 })), hand);
  const slider = h("input", { type: "range", name: "scrub", min: "0", max: String(ordered.length - 1), "aria-label": "Compare the present with the state at", oninput: () => moved(false), onchange: () => moved(true) });
  const text = h("output.scrub-text", {});
  const place = ordered.findIndex((each) => each.metadata.name === chosen);
  slider.value = String(place < 0 ? ordered.length - 1 : place);
  show();

  function show() {
    const at = Number(slider.value);
    const each = ordered[at];
    hand.setAttribute("x", x(at) - 1);
    const words = `${timeText(each.time)}, revision ${each.metadata.name} by ${shortUser(each.who.username ?? "")}${at === ordered.length - 1 ? " (the newest)" : ""}`;
    slider.setAttribute("aria-valuetext", words);
    text.replaceChildren(h("span", {}, words));
  }

  function moved(done) {
    show();
    (done ? settled : slid)(ordered[Number(slider.value)]);
  }
  return h("div.scrub", {}, h("span.faint", {}, "Drag to compare any moment with the newest state"), h("div.scrub-line", {}, picture, slider), text);
}
