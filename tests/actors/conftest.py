"""The store face's tests run whole servers in one process: see in_process.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/ is no package, and that helper is shared
