"""The process that servers of tests are forks of."""

from __future__ import annotations

from typing import Final

from kubechronicle.ops.ephemeral.forks import Fork as Fork
from kubechronicle.ops.ephemeral.forks import Forks

FORKS: Final = Forks()
