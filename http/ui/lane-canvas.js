// The picture of lanes: states as bars, changes as marks, for the part of time and the lanes that are in view.
//
// One frame draws what is visible alone. Bars and marks of one colour are one path, and several changes within a pixel are
// one mark, so a frame costs the same for any number of changes.

import { timeText } from "./dom.js";

export const LANE = 24;
export const AXIS = 26;
const BAR = 10;
const MARK = 3;
const DELETE = 3;
const GONE = "gone";
const LETTERS = "deployments/web-0123456789abcdef"; // of a usual name
const STEPS = [1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 10800e3, 43200e3, 86400e3, 604800e3, 2592000e3, 31536000e3];

/** ``colours``: {text, faint, line, ground, raised, chosen, states: {name: colour}, operations: [, create, update, delete]}. */
export class LaneCanvas {
  constructor(canvas, data, colours) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.data = data;
    this.colours = colours;
    this.lanes = [];
    this.density = false;
    this.chosen = -1;
    this.cursor = NaN;
    this.top = 0;
    this.asked = 0;
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    [this.width, this.height] = [box.width, box.height];
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    this.context.textBaseline = "middle";
    this.letter = this.context.measureText(LETTERS).width / LETTERS.length;
    this.names = Math.min(260, Math.max(110, this.width * 0.26));
  }

  x(time) { return this.names + ((time - this.from) / (this.to - this.from)) * (this.width - this.names); }

  time(x) { return this.from + ((x - this.names) / (this.width - this.names)) * (this.to - this.from); }

  lane(y) { return y < AXIS ? -1 : Math.min(Math.floor((y - AXIS + this.top) / LANE), this.lanes.length - 1); }

  /** Draw in the next frame; several requests are one. */
  request() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      const began = performance.now();
      this.draw();
      this.canvas.lastFrame = performance.now() - began; // for measurements
    });
  }

  draw() {
    const { context: c, colours, width, height } = this;
    c.fillStyle = colours.ground;
    c.fillRect(0, 0, width, height);
    const first = Math.floor(this.top / LANE);
    const last = Math.min(this.lanes.length - 1, Math.ceil((this.top + height - AXIS) / LANE));
    const paths = new Map();
    const path = (colour) => {
      let found = paths.get(colour);
      if (!found) paths.set(colour, found = new Path2D());
      return found;
    };
    const labels = [];
    for (let place = first; place <= last; place++) {
      const y = AXIS + place * LANE - this.top;
      if (place === this.chosen) {
        c.fillStyle = colours.chosen;
        c.fillRect(0, y, width, LANE);
      }
      labels.push([this.lanes[place].name, y]);
      if (this.density) this.#density(this.lanes[place].rows, y, path);
      else this.#states(this.lanes[place].rows, y, path);
    }
    c.save();
    c.beginPath();
    c.rect(this.names, AXIS, width - this.names, height - AXIS);
    c.clip();
    for (const [colour, shape] of paths) {
      c.fillStyle = colour;
      c.fill(shape);
    }
    c.restore();
    this.#labels(labels);
    this.#axis();
  }

  #states(rows, y, path) {
    const { data, colours, from, to } = this;
    const start = Math.max(data.after(rows, from) - 1, 0);
    let [barFrom, barState, markAt, markColour] = [NaN, "", -1, ""];
    const bar = (end) => {
      if (barState && barState !== GONE && end > this.names) {
        const x = Math.max(barFrom, this.names);
        path(colours.states[barState]).rect(x, y + (LANE - BAR) / 2, Math.max(end - x, 1), BAR);
      }
    };
    for (let each = start; each < rows.length; each++) {
      const at = rows[each];
      const time = data.times[at];
      if (time > to) break;
      const x = this.x(time);
      const state = data.stateNames[data.state[at]];
      if (state !== barState) {
        bar(x);
        [barFrom, barState] = [x, state];
      }
      if (x < this.names) continue;
      const colour = colours.operations[data.operation[at]];
      const pixel = Math.round(x);
      if (pixel - markAt < 2 && colour === markColour) continue;
      [markAt, markColour] = [pixel, colour];
      const deleted = data.operation[at] === DELETE;
      path(colour).rect(pixel - 1, y + (deleted ? 3 : 5), MARK - (deleted ? 0 : 1), LANE - (deleted ? 6 : 10));
    }
    bar(this.x(Math.min(to, Math.max(data.to, Date.now()))));
  }

  /** Changes of many objects in one lane: the number in each few pixels, as height. */
  #density(rows, y, path) {
    const { data, colours, from, to } = this;
    const columns = Math.ceil((this.width - this.names) / 3);
    const counts = [0, 1, 2, 3].map(() => new Uint16Array(columns + 1));
    const end = data.after(rows, to);
    for (let each = data.after(rows, from); each < end; each++) {
      const column = Math.floor(((data.times[rows[each]] - from) / (to - from)) * columns);
      counts[data.operation[rows[each]]][column]++;
    }
    for (let column = 0; column <= columns; column++) {
      let bottom = y + LANE - 3;
      const total = counts[1][column] + counts[2][column] + counts[3][column];
      if (!total) continue;
      const high = Math.min(4 + Math.log2(total) * 3.4, LANE - 6);
      for (let operation = 1; operation <= 3; operation++) {
        const part = (counts[operation][column] / total) * high;
        if (part) path(colours.operations[operation]).rect(this.names + column * 3, bottom - part, 2, part);
        bottom -= part;
      }
    }
  }

  #labels(labels) {
    const { context: c, colours } = this;
    c.fillStyle = colours.ground;
    c.fillRect(0, AXIS, this.names, this.height - AXIS);
    for (const [name, y] of labels) {
      const chosen = this.lanes[this.chosen]?.name === name;
      if (chosen) {
        c.fillStyle = colours.chosen;
        c.fillRect(0, y, this.names, LANE);
      }
      c.fillStyle = colours.text;
      c.fillText(this.#fitted(name), 8, y + LANE / 2);
      c.fillStyle = colours.line;
      c.fillRect(0, y + LANE - 1, this.width, 1);
    }
  }

  #fitted(name) {
    return fitted(name, Math.floor((this.names - 16) / this.letter));
  }

  #axis() {
    const { context: c, colours, from, to } = this;
    c.fillStyle = colours.raised;
    c.fillRect(0, 0, this.width, AXIS);
    c.fillStyle = colours.faint;
    const most = (this.width - this.names) / 130;
    const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1);
    for (let time = Math.ceil(from / step) * step; time < to; time += step) {
      const x = this.x(time);
      c.fillStyle = colours.line;
      c.fillRect(x, AXIS - 6, 1, this.height);
      c.fillStyle = colours.faint;
      const text = timeText(time, { seconds: step < 60e3 });
      if (x < this.width - 70) c.fillText(step < 86400e3 ? text.slice(5) : text.slice(0, 10), x + 4, AXIS / 2);
    }
    if (!Number.isNaN(this.cursor)) {
      c.fillStyle = colours.link;
      const x = this.x(this.cursor);
      if (x >= this.names) c.fillRect(x - 1, 0, 2, this.height);
    }
  }
}

/** Return a name of at most ``most`` letters. Names end with what differs, so their beginning is cut: that of the
 * namespace, too, as lanes of several namespaces often have one name. */
export function fitted(name, most) {
  const end = (text, letters) => (text.length > letters ? `…${text.slice(1 - letters)}` : text);
  const [space, rest] = name.split("  ");
  if (name.length <= most || rest === undefined || most < 18) return end(name, most);
  const kept = end(space, Math.max(Math.floor(most / 3), most - 2 - rest.length));
  return `${kept}  ${end(rest, most - 2 - kept.length)}`;
}
