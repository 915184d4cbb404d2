"""Admission handlers as kopf's documentation writes them: kopf registers them, with its bundle, in a configuration.

Environment: WEBHOOK_PORT, WEBHOOK_FOLDER with tls.crt, tls.key and ca.crt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf

FOLDER = Path(os.environ["WEBHOOK_FOLDER"])


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.admission.managed = "kopf.example.com"
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        port=int(os.environ["WEBHOOK_PORT"]),
        host="localhost",
        certfile=FOLDER / "tls.crt",
        pkeyfile=FOLDER / "tls.key",
        cafile=FOLDER / "ca.crt",
    )


@kopf.on.validate("configmaps", annotations={"checked": "yes"})
def check(body: kopf.Body, warnings: list[str], dryrun: bool, **_: Any) -> None:
    size = body.get("data", {}).get("size", "")
    if not size.isdigit():
        raise kopf.AdmissionError(f"size is no number: {size!r}", code=422)
    if dryrun:
        warnings.append("only tried")


@kopf.on.mutate("configmaps", operations=["CREATE"], annotations={"checked": "yes"})
def default(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    if "color" not in body.get("data", {}):
        patch.setdefault("data", {})["color"] = "blue"
