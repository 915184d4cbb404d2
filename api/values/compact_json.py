"""JSON on one line without blanks, as orjson writes it.

Commands of `kubectl chronicle` show numbers and words far more often than whole objects. So orjson, whose import takes
as long as the rest of such a command, is imported for mappings, lists and fractions alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


def compact_json(value: Any) -> str:
    """Return a value of JSON as text."""
    if value is None or isinstance(value, str | int):
        return _ENCODER.encode(value)
    import orjson

    return orjson.dumps(value).decode()
