"""What is to be known of one setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting. ``default`` as an operator would write it, "" for none; ``placeholder`` is its value in --help.

    ``repeatable``: given several times on the command line, its values count as one list; ``whole``: which is not
    comma-separated. ``switch``: without a value it means true."""

    name: str
    placeholder: str
    default: str
    help: str
    environment: str = ""
    repeatable: bool = False
    whole: bool = False
    switch: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")
