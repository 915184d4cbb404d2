"""The description of one setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting.

    ``placeholder``: its value in --help
    ``default``: as an operator writes it, "" for none
    ``environment``: the environment variable that sets it too
    ``repeatable``: may be given several times on the command line; the values form one list
    ``keeps_commas``: its values are not comma-separated lists
    ``switch``: without a value it means true
    ``may_be_empty``: an empty value differs from none
    """

    name: str
    placeholder: str
    default: str
    help: str
    environment: str = ""
    repeatable: bool = False
    keeps_commas: bool = False
    switch: bool = False
    may_be_empty: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")
