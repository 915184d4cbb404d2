"""Bodies as texts that no encoder writes: duplicate keys, other spellings of numbers, YAML, broken ends."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import yaml


def as_text(rng: Random, body: Any, headers: dict[str, str]) -> str:
    """Return another spelling of a body. YAML sets the content type of plain JSON."""
    text = json.dumps(body, ensure_ascii=False)
    form = rng.choice(
        ["yaml", "yaml", "duplicate", "duplicate", "yaml duplicate", "float", "broken", "escaped", "spaces", "trailing"]
    )
    if form.startswith("yaml"):
        if headers.get("Content-Type", "application/json") == "application/json":
            headers["Content-Type"] = "application/yaml"
        if "$NS" in text or headers["Content-Type"].endswith("+json"):
            return text
        made: str = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
        if form == "yaml duplicate":
            lines = made.splitlines()
            keyed = [line for line in lines if ":" in line and not line.lstrip().startswith("-")]
            if keyed:
                line = rng.choice(keyed)
                lines.insert(lines.index(line) + 1, line if not line.endswith(":") else line + " {}")
                made = "\n".join(lines) + "\n"
        return made
    return {
        "duplicate": lambda: duplicated(rng, text),
        "float": lambda: text.replace(": 1,", ": 1.0,").replace(": 2,", ": 2e0,").replace(": 80}", ": 8e1}"),
        "broken": lambda: rng.choice(
            [text[: len(text) // 2], text[:-1], text + "}", "", " ", "null", "[]", "\ufeff" + text]
        ),
        "escaped": lambda: (
            text.replace("a", "\\u0061", 3) if rng.random() < 0.5 else text.replace(': "', ': "\\ud800', 1)
        ),
        "spaces": lambda: "\n\t " + json.dumps(body, indent=3),
        "trailing": lambda: text + rng.choice([" ", "\n", "x", text, ",", "\x00"]),
    }[form]()


def duplicated(rng: Random, text: str) -> str:
    """Write one key of one map twice."""
    starts = [index for index, letter in enumerate(text) if letter == "{" and text[index + 1 : index + 2] == '"']
    if not starts:
        return text
    start = rng.choice(starts)
    end = text.find('"', start + 2)
    key = text[start + 1 : end + 1]
    value = rng.choice(["null", "1", '"x"', "{}", "[]"])
    return f"{text[: start + 1]}{key}: {value}, {text[start + 1 :]}"
