"""Progress of long calls: a line in a terminal, a display in a notebook, a callback, or nothing."""

from __future__ import annotations

import html
import sys
import time
from typing import Any, Callable, Union

#: ``True`` chooses by where the code runs, ``False`` shows nothing, a callable receives snapshots.
ProgressOption = Union[bool, Callable[[dict[str, Any]], Any]]


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    current = shell.get_ipython()
    return current is not None and getattr(current, "kernel", None) is not None


def duration(seconds: float) -> str:
    """A time in words, as in 3 min 20 s."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


class _Shown:
    """What a notebook's display handle renders."""

    def __init__(self, line: str, part: float | None) -> None:
        self.line, self.part = line, part

    def __repr__(self) -> str:
        return self.line

    def _repr_html_(self) -> str:
        bar = "" if self.part is None else f'<progress value="{self.part:.4f}" max="1" style="width:16em"></progress> '
        return f'<div style="font-family:monospace">{bar}{html.escape(self.line)}</div>'


class Progress:
    """Shows snapshots: dictionaries with ``line`` (text), ``part`` (0 to 1, or None) and figures of the call."""

    def __init__(self, option: ProgressOption) -> None:
        self.callback = option if callable(option) else None
        self.kind = "none"
        if option is True:
            self.kind = "notebook" if _in_notebook() else ("terminal" if sys.stderr.isatty() else "none")
        self.handle: Any = None
        self.started = time.monotonic()
        self.last = 0.0
        self.width = 0

    @property
    def seconds(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.started

    def show(self, snapshot: dict[str, Any], force: bool = False) -> None:
        """Shows a snapshot, at most ten times a second."""
        now = time.monotonic()
        if not force and now - self.last < 0.1:
            return
        self.last = now
        snapshot.setdefault("seconds", self.seconds)
        if self.callback is not None:
            self.callback(snapshot)
            return
        line, part = str(snapshot.get("line", "")), snapshot.get("part")
        if self.kind == "terminal":
            bar = ""
            if part is not None:
                full = int(20 * min(max(part, 0.0), 1.0))
                bar = "█" * full + "░" * (20 - full) + " "
            text = (bar + line)[:110]
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)
        elif self.kind == "notebook":
            from IPython.display import display

            shown = _Shown(line, part)
            if self.handle is None:
                self.handle = display(shown, display_id=True)
            else:
                self.handle.update(shown)

    def show_last(self, snapshot: dict[str, Any]) -> None:
        """Shows how the call ended, where that stays: in a notebook that has shown it before, and to a callback."""
        if self.callback is not None or self.handle is not None:
            self.show(snapshot, force=True)

    def close(self) -> None:
        """Ends the line of a terminal."""
        if self.kind == "terminal" and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
            self.width = 0
