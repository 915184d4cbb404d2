"""A server under feature gates, or that emulates an older version: the registry and all rules follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from in_process import InProcess, open_server

from kubechronicle.actors.admission import plugins
from kubechronicle.api.configuration import webhook_admission
from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.registry.runtime_config import Emulation, parse, registry_for

WITHOUT_ACCOUNTS = plugins.DEFAULT - {"ServiceAccount"}


def gates_of(gates: Mapping[str, bool] | None = None, emulated: str = "") -> FeatureGates:
    """Return feature gates at an emulated version."""
    return FeatureGates(effective_version([emulated] if emulated else [], []), gates)


@asynccontextmanager
async def open_release(
    gates: Mapping[str, bool] | None = None,
    *,
    emulated: str = "",
    runtime_config: str = "",
    other: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[InProcess]:
    """Run a server in this process. ``options``: as of ``open_server``."""
    features = gates_of(gates, emulated)
    changed = {
        "features": features,
        "registry": registry_for(parse(runtime_config), Emulation(gates=features)),
        "static_names": features.enabled(webhook_admission.GATE),
        **(other or {}),
    }
    admission = plugins.with_gates(options.pop("admission", WITHOUT_ACCOUNTS), features)
    async with open_server(features=features, other=changed, admission=admission, **options) as server:
        yield server
