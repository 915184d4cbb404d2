"""The report: totals, tables by area and kind, and the groups with their smallest examples; Markdown and JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from kubechronicle.ops.development.differential.grouping import Group, Groups, label
from kubechronicle.ops.development.differential.work import Totals

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
LISTED = 120
LONGEST = 1500


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3f} %" if whole else "–"


def markdown(totals: Totals, groups: Groups, seconds: float, seed: str, revision: str) -> str:
    lines = [
        "# Differential run",
        "",
        f"Seed {seed}, commit {revision}, {seconds:.0f} s, {totals.sequences} sequences, "
        f"{totals.requests} compared requests ({totals.requests / seconds if seconds else 0:.0f}/s).",
        "",
        f"- core differences: {totals.core} ({percent(totals.core, totals.requests)})",
        f"- strict differences only: {totals.strict} ({percent(totals.strict, totals.requests)})",
        f"- groups: {len(groups.ordered('core'))} core, {len(groups.ordered('strict'))} strict",
        "",
        "A request counts once; a group counts each request that shows it. Differences that follow from an earlier",
        "one of the same sequence are not counted again.",
        "",
    ]
    lines += table("area", totals.areas) + table("kind", totals.kinds)
    for verdict in ("core", "strict"):
        lines += [
            f"## Groups: {verdict}",
            "",
            "| n | count | kinds | verbs | difference | place |",
            "|---|---|---|---|---|---|",
        ]
        ordered = groups.ordered(verdict)
        for number, group in enumerate(ordered[:LISTED], 1):
            _, kind, place = group.signature
            columns = (str(number), str(group.count), label(group.kinds), label(group.verbs), cell(kind), cell(place))
            lines.append(f"| {' | '.join(columns)} |")
        lines.append("")
        for number, group in enumerate(ordered[:LISTED], 1):
            lines += detail(verdict, number, group)
    if totals.failures:
        lines += ["## Sequences that failed", "", "```", *totals.failures, "```", ""]
    return "\n".join(lines)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(name: str, counts: Counter[tuple[str, str]]) -> list[str]:
    names = sorted({key for key, _ in counts}, key=lambda key: (-counts[key, "core"], key))
    lines = [f"| {name} | requests | core | strict only |", "|---|---|---|---|"]
    for key in names:
        whole = counts[key, "requests"]
        core = f"{counts[key, 'core']} ({percent(counts[key, 'core'], whole)})"
        lines.append(f"| {key} | {whole} | {core} | {counts[key, 'strict']} |")
    return [*lines, ""]


def detail(verdict: str, number: int, group: Group) -> list[str]:
    lines = [f"### {verdict} {number}: {group.signature[1]} — {group.signature[2]} ({group.count})", ""]
    example = group.example
    if example is None:
        return lines
    state = "" if example.reproduced is None else (", reproduced" if example.reproduced else ", not reproduced alone")
    counts = f"Kinds {dict(group.kinds.most_common(8))}, verbs {dict(group.verbs.most_common(5))}."
    lines += [f"`--only {example.seed}`{state}{', shrunk' if example.shrunk else ''}. {counts}", "", "```"]
    for step in example.steps:
        lines.append(request(step))
    lines += [
        "",
        f"place:     {example.difference.place[:300]}",
        f"reference: {example.difference.want}",
        f"ours:      {example.difference.have}",
        "```",
        "",
    ]
    return lines


def request(step: dict[str, Any]) -> str:
    headers = "".join(f" [{name}: {value}]" for name, value in step.get("headers", {}).items())
    body = step.get("text") or (json.dumps(step["body"], ensure_ascii=False) if "body" in step else "")
    return f"{step['method']} {step['path']}{headers} {body[:LONGEST]}"


def document(totals: Totals, groups: Groups, seconds: float, seed: str, revision: str) -> dict[str, Any]:
    return {
        "seed": seed,
        "commit": revision,
        "seconds": round(seconds, 1),
        "requests": totals.requests,
        "core": totals.core,
        "strict": totals.strict,
        "groups": [
            {
                "verdict": group.signature[0],
                "type": group.signature[1],
                "place": group.signature[2],
                "count": group.count,
                "kinds": dict(group.kinds.most_common()),
                "verbs": dict(group.verbs.most_common()),
                "seed": group.example.seed if group.example else None,
                "steps": group.example.steps if group.example else [],
                "reference": group.example.difference.want if group.example else None,
                "ours": group.example.difference.have if group.example else None,
            }
            for group in groups.ordered()
        ],
    }


def write(path: Path, *arguments: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", markdown(*arguments)))
    path.with_suffix(".json").write_text(json.dumps(document(*arguments), ensure_ascii=False, indent=1))
