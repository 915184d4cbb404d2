"""Reports of an incident to share: one HTML file with everything in it, or Markdown for a postmortem. Pure.

    html_report(found, Period("2026-11-29T21:05:00Z", "2026-11-29T21:20:00Z", "shop"))

``found`` is a RevisionIncident (incidents.py). The HTML file needs nothing else: no scripts, no other files, no server.
Its policy forbids to load anything. All texts are escaped. The document itself is in it, too, as JSON for programs.

The style of a report's HTML file (reports.py), within the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final, NamedTuple

from kubechronicle.api.explaining.causes import CONTROLLERS, DELETING
from kubechronicle.api.history.cells import PAST_TENSES, action_of, changed_cell, object_cell, user_cell
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable

STYLE: Final = """
:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e4e7eb); --faint: light-dark(#57606a, #9ca5b0);
  --line: light-dark(#d5dae0, #363c45); --raised: light-dark(#f5f6f8, #1c2026); --good: light-dark(#1a6b34, #6fd08c);
  --bad: light-dark(#b3261e, #ff9b93); --warn: light-dark(#8a5300, #f0b95c); }
body { margin: 0; background: light-dark(#ffffff, #121519); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 28px; } p { margin: 4px 0; overflow-wrap: anywhere; }
svg { width: 100%; border: 1px solid var(--line); border-radius: 10px; margin: 14px 0; }
svg line { stroke: var(--line); } svg text { font-size: 12px; fill: var(--faint); }
rect.create { fill: var(--good); } rect.update { fill: var(--warn); } rect.delete { fill: var(--bad); }
ol { padding-left: 24px; } ol > li { border-bottom: 1px solid var(--line); padding: 10px 0; }
.deed::before { content: "●"; margin-right: 8px; color: var(--warn); }
.deed.create::before { color: var(--good); } .deed.delete::before { color: var(--bad); }
.faint, small, time { color: var(--faint); } .quote { font-style: italic; } .warn { color: var(--warn); }
code { font: 12.5px ui-monospace, "DejaVu Sans Mono", Consolas, monospace; background: var(--raised);
  border-radius: 4px; padding: 1px 4px; overflow-wrap: anywhere; }
pre { overflow: auto; padding: 10px; border: 1px solid var(--line); border-radius: 8px; font: 12.5px ui-monospace,
  "DejaVu Sans Mono", Consolas, monospace; } ins, del { text-decoration: none; color: var(--good); }
del { color: var(--bad); }
.reasons span { display: inline-block; border: 1px solid var(--line); border-radius: 10px; padding: 0 9px;
  margin: 2px 5px 2px 0; font-size: 12.5px; color: var(--warn); }
summary { cursor: pointer; } details ul { list-style: none; padding-left: 10px; border-left: 2px solid var(--line); }
details li { overflow-wrap: anywhere; } .d2 { padding-left: 16px; } .d3 { padding-left: 32px; }
.d4 { padding-left: 48px; } .d5, .d6, .d7, .d8 { padding-left: 64px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th, td { text-align: left; vertical-align: top;
  padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
@media print { details::details-content { content-visibility: visible; display: block; } }
"""


FORMATS: Final = ("html", "markdown")
MOST_CONSEQUENCES: Final = 200
"""Consequences of one cause that a report lists."""
DEPTH: Final = 8
WIDE: Final = 1000
HIGH: Final = 26
"""Of a lane of the picture."""
MOST_USERS: Final = 8
"""Lanes of the picture."""
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
WORDS: Final = {"Create": "created", "Update": "changed", "Delete": "deleted"}
OTHERS: Final = "controllers"
"""The lane of all other changes."""


class Period(NamedTuple):
    """The period of an incident, in RFC 3339; "": not given. ``namespace``: "" for all."""

    begin: str = ""
    end: str = ""
    namespace: str = ""


class FailedTest(NamedTuple):
    """A failed test, with its message, that a report is about instead of a period."""

    title: str
    text: str


class _Cause(NamedTuple):
    """A change with all that followed, each with its depth."""

    change: Object
    followed: Sequence[tuple[int, Object]]


def report(found: Mapping[str, Any], period: Period, form: str) -> str:
    """Return the report in one of FORMATS. Changes with ``before`` and ``after`` show the objects' differences."""
    return html_report(found, period) if form == "html" else markdown_report(found, period)


def _causes(changes: Sequence[Object]) -> list[_Cause]:
    """Return the changes without a cause among them, as they are ranked, each with what followed in order of time."""
    children: dict[str, list[Object]] = {}
    known = {change["metadata"]["name"] for change in changes}
    for change in sorted(changes, key=lambda each: int(each["metadata"]["name"])):
        children.setdefault(change.get("because", ""), []).append(change)

    def below(change: Object, depth: int) -> Iterator[tuple[int, Object]]:
        for each in children.get(change["metadata"]["name"], ()):
            yield depth, each
            if depth < DEPTH:
                yield from below(each, depth + 1)

    roots = [change for change in changes if change.get("because", "") not in known]
    return [_Cause(change, list(below(change, 1))) for change in roots]


def _divided(causes: Sequence[_Cause]) -> tuple[list[_Cause], list[_Cause]]:
    """Return the causes by people and their programs, and those by controllers."""
    people: list[_Cause] = []
    controllers: list[_Cause] = []
    for cause in causes:
        is_controller = str(cause.change["who"].get("username", "")).startswith(CONTROLLERS)
        (controllers if is_controller else people).append(cause)
    return people, controllers


def _period(found: Mapping[str, Any], period: Period) -> tuple[str, str]:
    times = sorted(change["time"] for change in found["changes"])
    begin, end = period.begin or (times[0] if times else ""), period.end or (times[-1] if times else "")
    return begin, end


def _shown(time: str) -> str:
    return f"{time[:19].replace('T', ' ')} UTC" if time else "an unknown time"


def _title(found: Mapping[str, Any], period: Period) -> str:
    begin, end = _period(found, period)
    where = f"in namespace {printable(period.namespace)}" if period.namespace else "in the cluster"
    first = begin[:19].replace("T", " ") if begin[:10] == end[:10] else _shown(begin)
    last = f"{end[11:19]} UTC" if begin[:10] == end[:10] else _shown(end)
    return f"What changed {where} from {first} to {last}"


def _facts(found: Mapping[str, Any], causes: Sequence[_Cause]) -> list[str]:
    changes = found["changes"]
    users = dict.fromkeys(user_cell(cause.change) for cause in _divided(causes)[0])
    facts = [
        f"{len(changes)} changes, from {len(causes)} causes, by {', '.join(users) or 'nobody'}.",
        f"The unusual ones come first, compared with the changes since revision {found['comparedSince']}.",
    ]
    if found.get("heartbeats"):
        facts.append(f"{found['heartbeats']} heartbeats of controllers are left out.")
    if found.get("truncated"):
        facts.append(f"There were more changes: those before revision {found['first']} are left out.")
    return facts


def _sentence(change: Object) -> str:
    namespace = change["object"].get("namespace")
    action = action_of(change)
    is_mark = change["operation"] == "Update" and action in DELETING
    verb = PAST_TENSES.get(action, "asked to delete" if is_mark else WORDS[change["operation"]])
    return f"{verb} {object_cell(change)}" + (f" in {printable(namespace)}" if namespace else "")


# -- Markdown ---------------------------------------------------------------------------------------------------------

_MARKED: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|"})


def _plain(text: str) -> str:
    """Return a text without the marks of Markdown."""
    return printable(text).translate(_MARKED)


def _code(text: str) -> str:
    """Return a text as code: between more backticks than it has."""
    fence = "`" * (1 + max((len(run) for run in _runs(text, "`")), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _runs(text: str, character: str) -> list[str]:
    return "".join(each if each == character else " " for each in text).split()


def markdown_report(found: Mapping[str, Any], period: Period) -> str:
    """Return the beginning of a postmortem: what changed, with the questions that only people can answer."""
    causes = _causes(found["changes"])
    lines = [f"# {_plain(_title(found, period))}", "", *map(_plain, _facts(found, causes)), "", "## Summary", ""]
    lines += ["*What did users notice, from when to when?*", "", "## Causes", ""]
    people, controllers = _divided(causes)
    for number, cause in enumerate(people, 1):
        lines += [*_markdown_cause(number, cause), ""]
    if controllers:
        lines += [f"{len(controllers)} changes of controllers have no known cause in this time.", ""]
    lines += ["## Timeline", "", "| time (UTC) | revision | user | change |", "|---|---|---|---|"]
    for change in sorted(found["changes"], key=lambda each: int(each["metadata"]["name"])):
        cells = (
            change["time"][11:19],
            change["metadata"]["name"],
            _plain(user_cell(change)),
            _plain(_sentence(change)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## What went well, what did not", "", "## Actions", "", "- [ ] ", ""]
    return "\n".join(lines)


def _markdown_cause(number: int, cause: _Cause) -> Iterator[str]:
    change = cause.change
    yield f"{number}. **{_plain(_sentence(change))}** by {_plain(user_cell(change))}"
    yield f"   - {_shown(change['time'])}, revision {change['metadata']['name']}"
    details = [f"{_plain(', '.join(change['reasons']))}"] if change.get("reasons") else []
    details += [f"grants {_plain(change['grants'])}"] if change.get("grants") else []
    details += [f"reason: {_plain(change['reason'])}"] if change.get("reason") else []
    yield from (f"   - {text}" for text in details)
    yield f"   - {_code(printable(changed_cell(change)))}"
    for depth, each in cause.followed[:MOST_CONSEQUENCES]:
        sure = " (inferred)" if each.get("known") == "inferred" else ""
        yield f"   {'  ' * depth}- {_plain(_sentence(each))} by {_plain(user_cell(each))}{sure}"
    if len(cause.followed) > MOST_CONSEQUENCES:
        yield f"   - and {len(cause.followed) - MOST_CONSEQUENCES} more"


# -- HTML -------------------------------------------------------------------------------------------------------------


def _text(text: Any) -> str:
    return escape(printable(str(text)))


def html_report(found: Mapping[str, Any], period: Period, subject: FailedTest | None = None) -> str:
    """Return the report as one HTML file."""
    causes = _causes(found["changes"])
    title = _text(_title(found, period) if subject is None else subject.title)
    people, controllers = _divided(causes)
    import orjson  # commands start without it

    document = orjson.dumps(found).decode().replace("<", "\\u003c")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{title}</h1>",
        f"<pre>{escape(subject.text)}</pre>" if subject is not None else "",
        *(f"<p>{_text(fact)}</p>" for fact in _facts(found, causes)),
        _picture(found, period, causes) if found["changes"] else "<p>Nothing changed.</p>",
        "<h2>Causes</h2>",
        f"<ol>{''.join(map(_html_cause, people))}</ol>",
        f"<details><summary>{len(controllers)} changes of controllers without a known cause in this time</summary>"
        f"<ol>{''.join(map(_html_cause, controllers))}</ol></details>"
        if controllers
        else "",
        _table(found["changes"]),
        f'<script type="application/json" id="incident">{document}</script>',
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _html_cause(cause: _Cause) -> str:
    change = cause.change
    tone = change["operation"].lower()
    parts = [
        f'<li id="r{_text(change["metadata"]["name"])}"><p class="deed {tone}"><b>{_text(user_cell(change))}</b> ',
        f"{_text(_sentence(change))}</p>",
        f'<p class="faint">{_text(_shown(change["time"]))}, revision {_text(change["metadata"]["name"])}</p>',
        f"<p><code>{_text(changed_cell(change))}</code></p>" if not change.get("grants") else "",
        f'<p class="quote">“{_text(change["reason"])}”</p>' if change.get("reason") else "",
        '<p class="reasons">' + "".join(f"<span>{_text(each)}</span>" for each in change.get("reasons") or ()) + "</p>",
        f'<p class="warn">grants {_text(change["grants"])}</p>' if change.get("grants") else "",
    ]
    if cause.followed:
        shown = cause.followed[:MOST_CONSEQUENCES]
        items = "".join(_html_followed(depth, each) for depth, each in shown)
        more = f"<li>and {len(cause.followed) - len(shown)} more</li>" if len(shown) < len(cause.followed) else ""
        count = len(cause.followed)
        parts.append(
            f"<details><summary>{count} change{'s' * (count > 1)} followed</summary><ul>{items}{more}</ul></details>"
        )
    return "".join(parts) + "</li>"


def _html_followed(depth: int, change: Object) -> str:
    sure = " <small>(inferred)</small>" if change.get("known") == "inferred" else ""
    return (
        f'<li class="d{min(depth, DEPTH)}"><time>{_text(change["time"][11:19])}</time> '
        f"{_text(user_cell(change))} {_text(_sentence(change))}{sure}</li>"
    )


def _table(changes: Sequence[Object]) -> str:
    rows = []
    for change in sorted(changes, key=lambda each: int(each["metadata"]["name"])):
        cells = (change["time"][11:19], change["metadata"]["name"], user_cell(change), _sentence(change))
        code = f"<td><code>{_text(changed_cell(change))}</code>{_difference(change)}</td>"
        rows.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + code + "</tr>")
    head = "".join(f'<th scope="col">{each}</th>' for each in ("Time (UTC)", "Revision", "User", "Change", "What"))
    return (
        f"<h2>Timeline</h2><details><summary>All {len(changes)} changes, in order</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></details>"
    )


def _difference(change: Object) -> str:
    """Return an object before and after a change, line by line; "" without its contents."""
    if "before" not in change and "after" not in change:
        return ""
    import difflib  # commands start without these

    from kubechronicle.api.codecs import yaml

    def lines_of(obj: Object | None) -> list[str]:
        if obj is None:
            return []
        metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
        return yaml.encode({**obj, "metadata": metadata}).decode().splitlines()

    before, after = lines_of(change.get("before")), lines_of(change.get("after"))
    shown = []
    for line in list(difflib.unified_diff(before, after, lineterm="", n=len(before) + len(after)))[3:]:
        tag = {"+": "ins", "-": "del"}.get(line[0], "span")
        shown.append(f"<{tag}>{escape(line)}</{tag}>\n")
    return f"<details><summary>before and after</summary><pre>{''.join(shown)}</pre></details>" if shown else ""


def _picture(found: Mapping[str, Any], period: Period, causes: Sequence[_Cause]) -> str:
    """Return the changes over time, a lane for each user whose changes are causes, and one for all consequences."""
    begin, end = (datetime.fromisoformat(each).timestamp() for each in _period(found, period))
    span = max(end - begin, 0.001)
    users = list(dict.fromkeys(user_cell(cause.change) for cause in _divided(causes)[0]))[:MOST_USERS]
    roots = {cause.change["metadata"]["name"] for cause in causes}
    lanes: dict[str, list[Object]] = {user: [] for user in (*users, OTHERS)}
    for change in found["changes"]:
        user = user_cell(change) if change["metadata"]["name"] in roots else ""
        lanes[user if user in lanes else OTHERS].append(change)
    parts = []
    for place, (user, changes) in enumerate(lanes.items()):
        y = place * HIGH
        parts.append(f'<line x1="0" x2="{WIDE}" y1="{y + HIGH}" y2="{y + HIGH}"/>')
        parts.append(f'<text x="4" y="{y + 17}">{_text(user)}</text>')
        for change in changes:
            x = 200 + (datetime.fromisoformat(change["time"]).timestamp() - begin) / span * (WIDE - 210)
            label = f"{change['time'][11:19]} {_sentence(change)}"
            parts.append(
                f'<rect class="{change["operation"].lower()}" x="{x:.1f}" y="{y + 6}" width="5" height="{HIGH - 12}" '
                f'rx="2"><title>{_text(label)}</title></rect>'
            )
    high = len(lanes) * HIGH + 4
    return f'<svg viewBox="0 0 {WIDE} {high}" role="img" aria-label="Changes over time, by user">{"".join(parts)}</svg>'
