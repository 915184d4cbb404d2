"""The settings as /flagz and /configz show them: the text of each flag, or its value as JSON, without secrets."""

from __future__ import annotations

import re
from typing import Any, Final

from kubechronicle.api.values import durations
from kubechronicle.ops.settings import types
from kubechronicle.ops.settings.flags import FLAGS
from kubechronicle.ops.settings.flags.flag import Flag
from kubechronicle.ops.settings.settings import Settings

_CREDENTIALS: Final = re.compile(r"//[^@/]*@")
_PASSWORD: Final = re.compile(r"(password=)[^&\s]*", re.IGNORECASE)


def shown(settings: Settings) -> dict[str, str]:
    """Return the values of all flags by name, as they would be written on the command line."""
    values = {}
    for flag in FLAGS:
        values[flag.name] = _without_secrets(_flag_text(settings, flag))
    return values


def configuration(settings: Settings) -> dict[str, Any]:
    """Return the values of all flags by name, for programs: numbers, booleans and lists as JSON has them, durations as
    Go writes them, and null for a value that is not set."""
    values: dict[str, Any] = {}
    for flag in FLAGS:
        value = getattr(settings, flag.field)
        if value is None or (isinstance(value, bool | int | float) and flag.placeholder != "DURATION"):
            values[flag.name] = value
        elif isinstance(value, tuple | list):
            values[flag.name] = [_without_secrets(_text(one, is_duration=False)) for one in value]
        else:
            values[flag.name] = _without_secrets(_flag_text(settings, flag))
    return values


def _flag_text(settings: Settings, flag: Flag) -> str:
    return _text(getattr(settings, flag.field), is_duration=flag.placeholder == "DURATION")


def _without_secrets(text: str) -> str:
    return _PASSWORD.sub(r"\1REDACTED", _CREDENTIALS.sub("//REDACTED@", text))


def _text(value: Any, *, is_duration: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if is_duration:
        return durations.text_of(round(value * durations.SECOND))
    match value:
        case types.Controllers():
            return ",".join(value.patterns)
        case types.ServiceRanges():
            return ",".join(map(str, value.networks))
        case types.PortRange():
            return f"{value.first}-{value.last}"
        case types.NamedFiles():
            return ",".join(f"{each[0]},{each[1]}:{','.join(each[2])}".rstrip(":") for each in value.files)
        case types.LabelValues():
            return ",".join(f'"{metric},{label}={",".join(values)}"' for metric, label, values in value.allowed)
        case types.DatabaseOverrides():
            return ",".join(f"{resource}#{url}" for resource, url in value.overrides)
        case types.Pairs() | types.SeparatePairs():
            return ",".join(f"{key}={text}" for key, text in value.pairs)
    if isinstance(value, tuple | list):
        return ",".join(_text(one, is_duration=False) for one in value)
    return str(value)
