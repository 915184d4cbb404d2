"""Reports of an incident: one HTML file, and Markdown."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from kubechronicle.api.explaining.reports import MOST_CONSEQUENCES, Period, html_report, markdown_report

HOSTILE = "<img src=x onerror=alert(1)>](javascript:x)|`x``"
KCM = "system:serviceaccount:kube-system:deployment-controller"


def change(number: int, user: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": str(number)},
        "time": f"2026-11-29T21:05:{number % 60:02d}.000000Z",
        "operation": "Update",
        "object": {"apiVersion": "apps/v1", "resource": "deployments", "namespace": "shop", "name": name},
        "who": {"username": user},
        "request": {"verb": "patch", "uri": "/x"},
        "summary": "spec.replicas: 1 → 2",
        "reasons": [],
        "score": 0,
    } | more


def incident(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"changes": list(changes), "comparedSince": "1", "truncated": False, "first": "1", "heartbeats": 2}


FOUND = incident(
    change(1, "alice", "web", reasons=["image"], reason="ticket 42"),
    change(2, KCM, "web-1", because="1", known="inferred"),
    change(3, "bob", HOSTILE, summary=HOSTILE, reason=HOSTILE, grants=HOSTILE, reasons=[HOSTILE]),
    change(4, KCM, "other"),
)
PERIOD = Period("2026-11-29T21:05:00Z", "2026-11-29T21:20:00Z", "shop")


class Tags(HTMLParser):
    """The tags and attributes of a file. ``data``: the JSON in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.data += data


def test_one_html_file_has_everything_and_loads_nothing() -> None:
    text = html_report(FOUND, PERIOD)
    parsed = Tags()
    parsed.feed(text)
    names = [tag for tag, _ in parsed.tags]
    assert not {"img", "link", "iframe", "object", "a", "form"} & set(names)
    scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "incident"}]
    assert not any(
        name.startswith("on") or name in ("src", "href", "style")
        for _, attributes in parsed.tags
        for name in attributes
    )
    policy = next(attributes["content"] for tag, attributes in parsed.tags if attributes.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert json.loads(parsed.data) == FOUND
    assert "What changed in namespace shop from 2026-11-29 21:05:00 to 21:20:00 UTC" in text
    assert "“ticket 42”" in text
    assert "1 change followed" in text
    assert "(inferred)" in text
    assert "1 changes of controllers without a known cause" in text
    assert text.count("<rect") == 4


def test_markdown_escapes_what_others_chose() -> None:
    text = markdown_report(FOUND, PERIOD)
    assert re.search(r"^1\. \*\*changed deployments.apps/web in shop\*\* by alice$", text, re.MULTILINE)
    assert "   - reason: ticket 42" in text
    assert "2 heartbeats of controllers are left out." in text
    table = [line for line in text.splitlines() if line.startswith("| 21:05")]
    assert len(table) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)
    without_code = re.sub(r"(`+) .*? \1", "", text)
    assert "<img" not in without_code.replace("\\<", "")


@pytest.mark.parametrize("form", [html_report, markdown_report])
def test_consequences_are_bounded_and_nothing_is_said(form: Any) -> None:
    followed = [change(10 + number, KCM, f"p{number}", because="1") for number in range(MOST_CONSEQUENCES + 5)]
    assert "and 5 more" in form(incident(change(1, "alice", "web"), *followed), Period())
    assert "0 changes, from 0 causes, by nobody" in form(incident(), Period())
