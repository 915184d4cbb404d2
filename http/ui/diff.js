// The difference of two lists of lines (Myers' algorithm), as rows of two columns side by side.

/** Return [{kind: "same" | "removed" | "added" | "changed", left, right}] with indexes in the lists. */
export function rows(before, after) {
  let start = 0;
  let ends = [before.length, after.length];
  while (start < ends[0] && start < ends[1] && before[start] === after[start]) start++;
  while (ends[0] > start && ends[1] > start && before[ends[0] - 1] === after[ends[1] - 1]) ends = ends.map((end) => end - 1);
  const found = [];
  for (let place = 0; place < start; place++) found.push({ kind: "same", left: place, right: place });
  let removed = [];
  let added = [];
  const flush = () => {
    for (let place = 0; place < Math.max(removed.length, added.length); place++) {
      const [left, right] = [removed[place], added[place]];
      found.push({ kind: left === undefined ? "added" : right === undefined ? "removed" : "changed", left, right });
    }
    removed = [];
    added = [];
  };
  for (const [step, left, right] of script(before.slice(start, ends[0]), after.slice(start, ends[1]))) {
    if (step === "-") removed.push(left + start);
    else if (step === "+") added.push(right + start);
    else {
      flush();
      found.push({ kind: "same", left: left + start, right: right + start });
    }
  }
  flush();
  for (let place = 0; place < before.length - ends[0]; place++) {
    found.push({ kind: "same", left: ends[0] + place, right: ends[1] + place });
  }
  return found;
}

// The shortest edit script; above LONGEST steps, everything is replaced.
const LONGEST = 800;

function script(before, after) {
  const [n, m] = [before.length, after.length];
  const reach = new Map([[1, 0]]);
  const trace = [];
  for (let steps = 0; steps <= Math.min(n + m, LONGEST); steps++) {
    trace.push(new Map(reach));
    for (let k = -steps; k <= steps; k += 2) {
      const down = k === -steps || (k !== steps && reach.get(k - 1) < reach.get(k + 1));
      let x = down ? reach.get(k + 1) : reach.get(k - 1) + 1;
      while (x < n && x - k < m && before[x] === after[x - k]) x++;
      reach.set(k, x);
      if (x >= n && x - k >= m) return back(trace, n, m);
    }
  }
  return [...before.map((_, place) => ["-", place]), ...after.map((_, place) => ["+", n, place])];
}

function back(trace, n, m) {
  const found = [];
  let [x, y] = [n, m];
  for (let steps = trace.length - 1; steps >= 0; steps--) {
    const reach = trace[steps];
    const k = x - y;
    const down = k === -steps || (k !== steps && reach.get(k - 1) < reach.get(k + 1));
    const from = down ? k + 1 : k - 1;
    const fromX = steps ? reach.get(from) : 0;
    const fromY = steps ? fromX - from : 0;
    while (x > fromX && y > fromY) found.push(["=", --x, --y]);
    if (steps) found.push(down ? ["+", x, --y] : ["-", --x, y]);
  }
  return found.reverse();
}
