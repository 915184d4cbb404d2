"""Tests with a real Prometheus. `make test` leaves them out, because its build takes minutes."""

from __future__ import annotations

import os

if not os.environ.get("KUBECHRONICLE_PROMETHEUS"):
    collect_ignore_glob = ["test_*.py"]
