"""The parts of aggregation that the handlers of requests work with."""

from __future__ import annotations

from dataclasses import dataclass

from kubechronicle.http.aggregation.discovery import RemoteDiscovery
from kubechronicle.http.aggregation.openapi import RemoteOpenApi
from kubechronicle.http.aggregation.proxy import Proxy
from kubechronicle.http.aggregation.routes import Routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """One per server. ``discovery.run`` is a child of the supervision tree."""

    routes: Routes
    proxy: Proxy
    discovery: RemoteDiscovery
    openapi: RemoteOpenApi
