"""Requests without a credential: system:anonymous, unless --anonymous-auth=false or the paths say otherwise."""

from __future__ import annotations

from collections.abc import Iterable


class Anonymous:
    """The rule for requests without a credential.

    ``paths``: the only paths on which they are allowed, compared as a whole; empty: every path. They are
    anonymous.conditions[].path of an AuthenticationConfiguration.
    """

    __slots__ = ("_paths", "enabled")

    def __init__(self, enabled: bool = True, paths: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._paths = frozenset(paths)

    def admits(self, path: str) -> bool:
        """Return whether a request to this decoded path may be anonymous. If not, it is answered with 401."""
        return self.enabled and (not self._paths or path in self._paths)
