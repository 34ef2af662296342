"""Settings as the core takes them: JSON, and whole numbers that are such."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _core
from ._errors import SettingError


def whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number, also where it is written as 1e5."""
    try:
        number = int(value)
        exact = not isinstance(value, (bool, str)) and bool(number == value)
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    if not exact or number < least:
        raise SettingError(f"setting {name}: expected a whole number of at least {least}, not {value!r}")
    return number


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return value


def to_json(settings: Mapping[str, Any]) -> str:
    """Settings by their names; None stands for the default."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None:
            continue
        found[name] = plain(value)
        try:
            json.dumps(found[name])
        except (TypeError, ValueError):
            raise SettingError(f"setting {name}: expected a number, text or a list of them, got {type(value).__name__}") from None
    return json.dumps(found)


def set_threads(n: int) -> None:
    """Sets the number of threads of this process; 0 stands for as many as there are cores. It changes no bit of a result."""
    _core.set_threads(whole(n, "threads"))
