"""Differences between two normal forms: core (status, reason, causes, fields) and strict (messages, warnings)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubechronicle.ops.development.differential.steps import Exchange
from kubechronicle.ops.development.differential.transport import UNANSWERED

OWN_GROUP = "history.kubechronicle.dev"
MOST = 40  # differences of one answer that are kept


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: the verdict it counts for, its type, the place, and both values as short texts."""

    verdict: str
    type: str
    place: str
    want: str = ""
    have: str = ""


def short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 300 else text[:300] + "…"


def is_status(form: Any) -> bool:
    return isinstance(form, Mapping) and form.get("kind") == "Status" and form.get("apiVersion") == "v1"


def kind_of(form: Any) -> str:
    return f"{form.get('apiVersion')} {form.get('kind')}" if isinstance(form, dict) else type(form).__name__


def causes(form: Mapping[str, Any]) -> list[tuple[str, str]]:
    details = form.get("details") or {}
    return sorted({(str(c.get("reason", "")), str(c.get("field", ""))) for c in details.get("causes") or ()})


def compare(exchange: Exchange) -> list[Difference]:
    """Return the differences of one exchange, the most telling ones alone."""
    want, have = exchange.want, exchange.have
    found: list[Difference] = []
    if want.status == UNANSWERED:
        return []  # kube-apiserver panics at some requests, so there is no answer to compare with
    if want.status != have.status:
        place = error_place(exchange.want_form) or error_place(exchange.have_form)
        change = f"{status_word(want.status, exchange.want_form)} → {status_word(have.status, exchange.have_form)}"
        found.append(Difference("core", change, place, summary(exchange.want_form), summary(exchange.have_form)))
        return found
    if media(want.content_type) != media(have.content_type):
        found.append(Difference("core", "content type", "", want.content_type, have.content_type))
        return found
    kinds = kind_of(exchange.want_form), kind_of(exchange.have_form)
    if kinds[0] != kinds[1]:
        return [
            Difference("core", f"{kinds[0]} → {kinds[1]}", "", short(exchange.want_form), short(exchange.have_form))
        ]
    if is_status(exchange.want_form) and is_status(exchange.have_form):
        found += statuses(exchange.want_form, exchange.have_form)
    else:
        found += fields(without_own_rules(exchange.want_form), without_own_rules(exchange.have_form), "")
    if want.warnings or have.warnings:
        found += warnings(want.warnings, have.warnings)
    return found[:MOST]


def without_own_rules(form: Any) -> Any:
    """Return a review of rules without those of the API that only this server has."""
    if not kind_of(form).endswith(" SelfSubjectRulesReview"):
        return form
    kept = [rule for rule in form["status"]["resourceRules"] if rule.get("apiGroups") != [OWN_GROUP]]
    return {**form, "status": {**form["status"], "resourceRules": kept}}


def media(content_type: str) -> str:
    return content_type.replace(" ", "").removesuffix(";charset=utf-8").lower()


def status_word(status: int, form: Any) -> str:
    if status == UNANSWERED:
        return "no answer"
    reason = form.get("reason") if is_status(form) else None
    return f"{status} {reason}" if reason else str(status)


def error_place(form: Any) -> str:
    """Return the causes of a rejection, or its message, as the place of a difference in status."""
    if not is_status(form) or form.get("status") != "Failure":
        return ""
    listed = causes(form)
    return "; ".join(f"{reason} {field}" for reason, field in listed[:3]) or str(form.get("message", ""))


def summary(form: Any) -> str:
    if is_status(form):
        return short(form.get("message", form.get("status", "")))
    return short(form)


def statuses(want: Mapping[str, Any], have: Mapping[str, Any]) -> Iterator[Difference]:
    for key in ("status", "reason", "code"):
        if want.get(key) != have.get(key):
            yield Difference("core", f"Status.{key}", "", short(want.get(key)), short(have.get(key)))
    wanted, got = causes(want), causes(have)
    message = short(want.get("message", "")), short(have.get("message", ""))
    for cause in wanted:
        if cause not in got:
            yield Difference("core", "cause missing", f"{cause[0]} {cause[1]}", *message)
    for cause in got:
        if cause not in wanted:
            yield Difference("core", "cause added", f"{cause[0]} {cause[1]}", *message)
    rest = [{k: v for k, v in (one.get("details") or {}).items() if k != "causes"} for one in (want, have)]
    yield from fields(rest[0], rest[1], ".details")
    others = [
        {k: v for k, v in one.items() if k not in ("status", "reason", "code", "message", "details")}
        for one in (want, have)
    ]
    yield from fields(others[0], others[1], "")
    yield from messages(want, have, wanted == got)


def messages(want: Mapping[str, Any], have: Mapping[str, Any], same_causes: bool) -> Iterator[Difference]:
    """Compare texts: of each cause if the causes are the same ones, otherwise of the whole."""
    texts = short(want.get("message", "")), short(have.get("message", ""))
    lists = [(one.get("details") or {}).get("causes") or [] for one in (want, have)]
    if not same_causes or not any(lists):
        if want.get("message") != have.get("message") and same_causes:
            yield Difference("strict", "message", str(want.get("message", "")), *texts)
        return
    shown = False
    ordered = [
        sorted(one, key=lambda cause: (str(cause.get("field")), str(cause.get("reason")), str(cause.get("message"))))
        for one in lists
    ]
    if len(ordered[0]) != len(ordered[1]):
        shown = True
        yield Difference(
            "strict", "number of causes", "; ".join(sorted({str(c.get("field")) for c in ordered[0]})[:3]), *texts
        )
    for first, second in zip(*ordered, strict=False):
        if not shown and first.get("message") != second.get("message"):
            shown = True
            yield Difference(
                "strict",
                "message of a cause",
                f"{first.get('field')}: {first.get('message')}",
                short(first.get("message")),
                short(second.get("message")),
            )
    if not shown and lists[0] != lists[1]:
        shown = True
        yield Difference("strict", "order of causes", "; ".join(str(c.get("field")) for c in ordered[0][:3]), *texts)
    if not shown and want.get("message") != have.get("message"):
        yield Difference("strict", "message", str(want.get("message", "")), *texts)


def warnings(want: list[str], have: list[str]) -> Iterator[Difference]:
    want, have = [unquoted(text) for text in want], [unquoted(text) for text in have]
    for text in want:
        if text not in have:
            yield Difference("strict", "warning missing", text, text, short(have))
    for text in have:
        if text not in want:
            yield Difference("strict", "warning added", text, short(want), text)
    if want != have and sorted(want) == sorted(have):
        yield Difference("strict", "order of warnings", want[0], short(want), short(have))


def unquoted(warning: str) -> str:
    """Return the text of a Warning header: 299 - "text"."""
    match = re.fullmatch(r'299 (?:-|\S+) "(.*)"', warning, re.DOTALL)
    return match[1].replace('\\"', '"').replace("\\\\", "\\") if match else warning


def fields(want: Any, have: Any, path: str) -> Iterator[Difference]:
    """Compare every field. A boolean never equals a number."""
    if isinstance(want, dict) and isinstance(have, dict):
        for key in sorted({*want, *have}, key=str):
            below = f"{path}.{key}" if re.fullmatch(r"[\w-]+", str(key)) else f"{path}[{key}]"
            if key not in have:
                yield Difference("core", "field missing", below, short(want[key]), "")
            elif key not in want:
                yield Difference("core", "field added", below, "", short(have[key]))
            else:
                yield from fields(want[key], have[key], below)
    elif isinstance(want, list) and isinstance(have, list):
        if len(want) != len(have):
            yield Difference("core", "length", path, short(want), short(have))
            return
        if want != have and sorted(map(str, want)) == sorted(map(str, have)):
            yield Difference("core", "order", path, short(want), short(have))
            return
        for index, pair in enumerate(zip(want, have, strict=True)):
            yield from fields(pair[0], pair[1], f"{path}[{index}]")
    elif type(want) is not type(have) or want != have:
        if isinstance(want, str) and isinstance(have, str) and path.endswith(".message"):
            yield Difference("strict", "message", want, short(want), short(have))
        else:
            yield Difference("core", "value", path, short(want), short(have))
