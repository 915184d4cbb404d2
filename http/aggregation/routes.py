"""Routes to other servers: the APIServices by the path of a request, kept up to date from the view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.registry.api_services import OWN_GROUP, RESOURCE, ApiService, api_service
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authorization.view_follower import ViewFollower

OPENAPI: Final = "/openapi/v3/apis/"


class Routes:
    """The APIServices of this replica's view. ``changes`` counts their changes, for caches of what depends on them."""

    def __init__(self, views: Views) -> None:
        self.changes = 0
        self._all: dict[str, ApiService] = {}
        self._remote: dict[tuple[str, str], ApiService] = {}
        self._follower = ViewFollower(views[RESOURCE], self._take)
        self._outdated = True  # each request asks for a route, and APIServices rarely change
        views.follow(RESOURCE, self._note_change)

    def all(self) -> Mapping[str, ApiService]:
        """Return all APIServices by name."""
        self.remote()
        return self._all

    def remote(self) -> Mapping[tuple[str, str], ApiService]:
        """Return those of other servers by group and version."""
        if self._outdated:
            self._outdated = False
            self._follower.catch_up()
        return self._remote

    def find(self, path: str) -> ApiService | None:
        """Return the APIService of another server that a path belongs to; None: this server answers.

        Its OpenAPI document /openapi/v3/apis/GROUP/VERSION belongs to it, too. The APIService ``v1.`` takes everything
        below /api, as in kube-aggregator.
        """
        remote = self.remote()
        if not remote:
            return None
        if path.startswith(OPENAPI):
            group, _, version = path.removeprefix(OPENAPI).partition("/")
            return remote.get((group, version))
        if not path.startswith("/api"):
            return None
        parts = path.split("/", 4)
        if parts[1] == "api":
            return remote.get(("", "v1"))
        if parts[1] != "apis" or len(parts) < 4:
            return None
        return remote.get((parts[2], parts[3]))

    def _note_change(self, _: object) -> None:
        self._outdated = True

    def _take(self, _: str, name: str, entry: Entry | None) -> None:
        self.changes += 1
        former = self._all.pop(name, None)
        if former is not None:
            self._remote.pop((former.group, former.version), None)
        if entry is None:
            return
        found = self._all[name] = api_service(entry.object())
        if found.service is not None and found.group != OWN_GROUP:
            self._remote[found.group, found.version] = found
