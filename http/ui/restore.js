// Restores: the command that restores an object, and, where kubechronicle ui offers it, the plan with a button.

import { breakable, copyable, count, h, loading, say } from "./dom.js";
import { ApiError, askRestore, number, offersRestores, resourceName } from "./api.js";
import { failed } from "./changes.js";
import { isDeletion } from "./origins.js";
import { shellWord } from "./printable.js";

const SIGNS = { create: ["+", "recreate"], update: ["~", "revert"], replace: ["±", "delete and recreate"], leave: ["·", "leave"] };
// Characters of a value in a plan.
const SHORT = 120;

/** The state before a deletion, or before its ``mark``. A namespace is restored with its content. */
export function beforeDeletion(revision, mark) {
  const to = number(mark ?? revision) - 1;
  const { object } = revision;
  if (object.resource === "namespaces" && !object.namespace) return { words: [], namespace: object.name, to: String(to) };
  return { ...stateAt(revision), to: String(to) };
}

/** The state that a revision left. */
export function stateAt(revision) {
  const { object } = revision;
  return { words: [`${resourceName(object)}/${object.name}`], namespace: object.namespace ?? "", to: revision.metadata.name };
}

/** The state before a change of an object. */
export function beforeChange(revision) {
  return { ...stateAt(revision), to: String(number(revision) - 1) };
}

/** A deleted object with all that its deletion took with it. ``own``: the restore of the object alone. */
export function withConsequences({ object }, own) {
  if (!own.words.length) return own; // a namespace comes back with its objects
  return { ...own, words: [`${resourceName(object)}/${object.name}`], consequences: true };
}

/** Kinds that controllers make: a restored one without its owner is collected. */
export const MADE = new Set(["pods", "replicasets", "controllerrevisions", "endpointslices", "endpoints"]);

/** The restore of a deleted object that works: of the object whose deletion took it along, or before the change that removed it. */
export function restoreOf(revision, { origin, mark, rest = [] }) {
  const own = beforeDeletion(revision, mark);
  if (!origin) return MADE.has(revision.object.resource) ? [h("p.faint", {}, "if a controller made it, restore its owner; else:"), bringBack(own)] : bringBack(own);
  if (origin.object.uid === revision.object.uid) return bringBack(rest.length ? withConsequences(origin, own) : own);
  return isDeletion(origin) ? [h("p.faint", {}, `with ${origin.object.name}:`), bringBack(withConsequences(origin, beforeDeletion(origin)))] : [h("p.faint", {}, `before ${origin.object.name} was changed:`), bringBack(beforeChange(origin))];
}

/** Who makes an object anew, so that a restore of it alone fails; "" if nobody does. */
export function maker(state) {
  const owner = (state?.metadata?.ownerReferences ?? []).find((each) => each.controller);
  return owner ? `${owner.kind}/${owner.name}` : "";
}

/** The undoing of one change, which keeps what others changed later. */
export function undoing(revision) {
  const { words, namespace } = stateAt(revision);
  return { words, namespace, revision: revision.metadata.name, user: revision.who.username ?? "" };
}

function command({ words, namespace, to, consequences, revision, user }) {
  const place = namespace ? ` -n ${shellWord(namespace)}` : "";
  if (revision) return `kubectl chronicle revert ${words.map(shellWord).join(" ")}${place} --user ${shellWord(user)} --since ${Number(revision) - 1} --until ${revision}`;
  return `kubectl chronicle restore${words.map((word) => ` ${shellWord(word)}`).join("")}${place} --to ${to}${consequences ? " --with-consequences" : ""}`;
}

/** The command, and a button. */
export function bringBack(asked) {
  const name = asked.words[0] ?? `namespace ${asked.namespace}`;
  const does = asked.revision ? "Undo" : "Restore";
  return h("span.bring", {}, copyable(command(asked)),
    offersRestores() && h("button", { type: "button", "aria-haspopup": "dialog", "aria-label": `${does} ${name}`, onclick: () => open(asked, name, does) }, `${does} …`));
}

function open(asked, name, does) {
  const body = h("div", {}, loading(4));
  const dialog = h("dialog.restore", { "aria-labelledby": "restore-title" }, h("h2", { id: "restore-title" }, asked.revision ? `Undo revision ${asked.revision} of ` : "Restore ", breakable(name)), body);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  plan();

  async function plan(remark) {
    body.replaceChildren(loading(4));
    try {
      show(await askRestore(asked), remark);
    } catch (error) {
      end(error);
    }
  }

  function show(found, remark) {
    const replaced = found.steps.some((step) => step.action === "replace");
    const replace = h("input", { type: "checkbox" });
    const start = h("button", { type: "submit" }, does);
    const allowed = () => { start.disabled = !found.steps.some((step) => step.action !== "leave" && (step.action !== "replace" || replace.checked)); };
    replace.addEventListener("change", allowed);
    allowed();
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); carryOut(found, replace.checked); } },
      replaced && h("label.check", {}, replace, "delete and create what cannot be changed in place"), start, " ", close("Cancel"));
    body.replaceChildren(...[
      remark && h("p.note", { role: "alert" }, remark),
      h("p", {}, !found.moment ? "What others changed later stays. Nothing has been changed yet." : `${/^\d+$/.test(found.moment) ? `As of revision ${found.moment}` : `As of ${found.moment}`}. Nothing has been changed yet.`), ...remarks(found),
      found.steps.length ? h("ul.plan", {}, found.steps.map(step)) : h("p.empty", {}, asked.revision ? "There is nothing to undo." : "Everything is as it was then."), form].filter(Boolean));
    (start.disabled ? form.querySelector("button[type=button]") : start).focus();
    say(`The plan has ${count(found.steps.length, "step")}`);
  }

  async function carryOut(found, replace) {
    body.replaceChildren(h("p.note", { role: "status" }, "Restoring …"), loading(2));
    try {
      const { results, carriedOut } = await askRestore({ ...asked, replace, plan: found.plan });
      const failures = results.filter((result) => result.failed).length;
      body.replaceChildren(h("ul.plan", {}, results.map((result) => h(`li${result.failed ? ".bad" : ""}`, {}, nameOf(result), " ", result.outcome))),
        carriedOut ? h("p.faint", {}, carriedOut) : "",
        h("form", { method: "dialog" }, close("Close")));
      body.querySelector("button").focus();
      say(failures ? `${count(failures, "object")} could not be restored` : `${count(results.length, "object")} restored`);
    } catch (error) {
      if (error instanceof ApiError && error.code === 409) await plan("The cluster has changed since the plan was made. This is the new plan.");
      else end(error);
    }
  }

  function end(error) {
    const place = h("div");
    failed(place, error);
    body.replaceChildren(place, h("form", { method: "dialog" }, close("Close")));
    body.querySelector("button").focus();
  }

  const close = (text) => h("button", { type: "button", onclick: () => dialog.close() }, text);
}

function remarks({ notes, unread }) {
  const skipped = Object.entries(unread).map(([resource, reason]) => `skipped: ${resource}: ${reason}`);
  return [...notes, ...skipped].map((text) => h("p.faint", {}, text));
}

const nameOf = ({ group, kind, name }) => h("b", {}, breakable(`${kind.toLowerCase()}${group ? `.${group}` : ""}/${name}`));

function step(one) {
  const [sign, word] = SIGNS[one.action] ?? ["", one.action];
  return h("li", {}, `${sign} ${word} `, nameOf(one), one.why && h("small.faint", {}, ` (${one.why})`),
    one.rejected && h("p.bad", {}, `would be rejected: ${one.rejected}`),
    one.changes && h("ul", {}, one.changes.map((change) => h("li", {}, h("code", {}, breakable(change.field), ": ",
      "old" in change && h("del", {}, short(change.old)), "old" in change && "value" in change && " → ", "value" in change && h("ins", {}, short(change.value)))))));
}

function short(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
}
