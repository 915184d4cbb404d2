// Changes as a file: JSON as the API has it, or CSV of the columns that people ask for.

import { count, h, say, write } from "./dom.js";
import { resourceName } from "./api.js";

const MOST = 10000;
const COLUMNS = [
  ["revision", ({ metadata }) => metadata.name], ["time", ({ time }) => time], ["user", ({ who }) => who.username], ["impersonator", ({ who }) => who.impersonator],
  ["operation", ({ operation }) => operation], ["namespace", ({ object }) => object.namespace], ["resource", ({ object }) => resourceName(object)],
  ["name", ({ object }) => object.name], ["uid", ({ object }) => object.uid], ["change", ({ summary }) => summary],
  ["field manager", ({ who }) => who.fieldManager], ["program", ({ who }) => who.userAgent], ["address", ({ who }) => who.sourceAddress],
  ["request", ({ request }) => request && `${request.verb ?? ""} ${request.uri ?? ""}`], ["audit id", ({ request }) => request?.auditID], ["reason", ({ reason }) => reason],
];

/** Return the buttons that save what ``changes()`` finds, at most MOST changes. */
export function exportButtons(changes) {
  const button = (text, type, make) => h("button", { type: "button", onclick: async (event) => {
    event.target.disabled = true;
    try {
      await save(changes(), text, type, make, (found) => write(event.target, `${text}: ${found}`));
    } catch (error) {
      if (error.name !== "AbortError") say(`It was not saved: ${error.message}`);
    }
    event.target.disabled = false;
    write(event.target, text);
  } }, text);
  return h("p.export", {}, "Save as ", button("CSV", "text/csv", csv), " ", button("JSON", "application/json", json));
}

async function save(changes, text, type, make, progress) {
  const found = [];
  while (!changes.ended && found.length < MOST) {
    const page = await changes.next(500);
    if (!page.length) break;
    found.push(...page);
    progress(found.length);
  }
  saveFile(make(found), type, `revisions.${text.toLowerCase()}`);
  say(`${count(found.length, "change")} saved${changes.ended ? "" : `, the newest; there are more than ${MOST}`}`);
}

/** Let the browser save a text as a file. */
export function saveFile(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

const json = (found) => `${JSON.stringify({ apiVersion: "history.kubechronicle.dev/v1", kind: "RevisionList", items: found }, null, 1)}\n`;

function csv(found) {
  const lines = [COLUMNS.map(([title]) => title), ...found.map((each) => COLUMNS.map(([, value]) => value(each) ?? ""))];
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

// RFC 4180. A text that a spreadsheet would run as a formula gets an apostrophe: others choose these texts.
function cell(value) {
  const text = /^[=+\-@\t\r]/.test(String(value)) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
