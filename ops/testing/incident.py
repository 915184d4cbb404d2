"""The incident of a failed test: its changes as text, and as one HTML file with the objects before and after each."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from kubechronicle.ops.testing.history import Change

if TYPE_CHECKING:
    from kubechronicle.ops.testing.cluster import Cluster

MOST: Final = 500
"""Changes in a page; a browser shows that many at once."""
LINES: Final = 40
"""Changes in the text."""
_STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
:root { color-scheme: light dark }
pre { overflow: auto; padding: .75rem; border: 1px solid #8884; border-radius: 6px; font-size: 12px }
summary { cursor: pointer; padding: .35rem 0; border-top: 1px solid #8884 }
.user { font-weight: 600 } .time, .revision { opacity: .7; font-variant-numeric: tabular-nums }
.new { color: light-dark(#116329, #7ee787) } .old { color: light-dark(#a40e26, #ff938a) }
"""


def incident_of(cluster: Cluster, test: str, failure: str, folder: Path) -> tuple[str, str]:
    """Write the page of a failed test, and return the heading and the text of the section in its report."""
    changes = cluster.history.all()
    people = [each for each in changes if not each.user.startswith("system:")]
    shown = [str(each) for each in (people or changes)[-LINES:]]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / (re.sub(r"[^\w.-]+", "-", test).strip("-")[-150:] + ".html")
    page.write_text(_page(test, failure, changes[-MOST:]), encoding="utf-8")
    own = len(changes) - len(people)
    lines = [*shown, f"{own} changes by the system are in the page" if own and people else "", f"page: {page}"]
    return "changes in the cluster", "\n".join(each for each in lines if each)


def _page(test: str, failure: str, changes: list[Change]) -> str:
    rows = "\n".join(_row(each) for each in changes)
    title = html.escape(test)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><pre>{html.escape(failure)}</pre><h2>{len(changes)} changes</h2>\n{rows}\n</html>\n"
    )


def _row(change: Change) -> str:
    time = change.time.strftime("%H:%M:%S.%f")[:-3]
    return (
        f'<details><summary><span class="revision">{change.revision}</span> <span class="time">{time}</span> '
        f'<span class="user">{html.escape(change.user)}</span> {html.escape(change.action)} '
        f"{html.escape(change.object)} <small>{html.escape(change.text)}</small></summary>"
        f"<pre>{''.join(_difference(change))}</pre></details>"
    )


def _difference(change: Change) -> list[str]:
    before, after = _lines(change.before), _lines(change.after)
    lines = []
    for line in list(difflib.unified_diff(before, after, lineterm="", n=1000))[3:]:
        style = {"+": "new", "-": "old"}.get(line[:1], "")
        text = html.escape(line)
        lines.append(f'<span class="{style}">{text}</span>\n' if style else f"{text}\n")
    return lines


def _lines(obj: Mapping[str, Any] | None) -> list[str]:
    if obj is None:
        return []
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
    return yaml.safe_dump({**obj, "metadata": metadata}, sort_keys=False).splitlines()
