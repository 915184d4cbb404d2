"""Requests without a credential: system:anonymous, unless --anonymous-auth=false or the paths say otherwise."""

from __future__ import annotations

from collections.abc import Iterable


class Anonymous:
    """Who may come without a credential. ``paths``: to which paths alone (anonymous.conditions[].path of an
    AuthenticationConfiguration, compared as a whole); empty: to all."""

    __slots__ = ("_paths", "enabled")

    def __init__(self, enabled: bool = True, paths: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._paths = frozenset(paths)

    def admits(self, path: str) -> bool:
        """Whether a request to this path (decoded) may come from nobody in particular; 401 if not."""
        return self.enabled and (not self._paths or path in self._paths)
