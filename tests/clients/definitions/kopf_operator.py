"""A kopf operator for the Sites of site.yaml: `kopf run kopf_operator.py`. test_kopf.py starts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf

GROUP = "operator.example.com"
PAUSED = Path(os.environ["KOPF_PAUSED"])  # while this file exists, updates fail and are tried again


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.posting.level = 20  # INFO: post an event of each handler
    # In annotations: the schema of a Site prunes status.kopf, where kopf keeps its state otherwise.
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.example.com")
    name = os.environ.get("KOPF_PEERING", "")
    settings.peering.standalone = not name
    settings.peering.mandatory = bool(name)
    settings.peering.name = name or "default"
    settings.peering.lifetime = 10  # seconds until a killed operator is forgotten


@kopf.on.create(GROUP, "sites")
@kopf.on.update(GROUP, "sites")
def write(spec: kopf.Spec, patch: kopf.Patch, meta: kopf.Meta, reason: str, **_: Any) -> None:
    if reason == "update" and PAUSED.exists():
        raise kopf.TemporaryError("paused", delay=0.5)
    print(f"{reason} {meta.name} {meta['generation']}", flush=True)
    patch.status["configMap"] = f"{spec['host']}-{spec['pages']}"
    patch.status["observedGeneration"] = meta["generation"]


@kopf.on.delete(GROUP, "sites")
def remove(meta: kopf.Meta, **_: Any) -> None:
    print(f"delete {meta.name} {meta['generation']}", flush=True)
