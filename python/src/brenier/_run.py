"""Waits for long calls: progress, warnings, and Ctrl-C."""

from __future__ import annotations

import json
import warnings
from typing import Any, Callable

from . import _core
from ._errors import BrenierWarning
from ._progress import Progress, ProgressOption, duration

#: Turns an event into changes of the snapshot.
Reader = Callable[[dict[str, Any], dict[str, Any]], None]


def warn(text: str, level: int = 3) -> None:
    """Warns the caller of a public function."""
    warnings.warn(text, BrenierWarning, stacklevel=level + 1)


def wait(job: _core.Job, progress: ProgressOption, read: Reader, news: str, meanwhile: Callable[[], None] | None = None, minutes: Any = None) -> tuple[Any, bool]:
    """The result of a call, and whether Ctrl-C stopped it.

    The first Ctrl-C asks the call to end with the best it has; the second raises ``KeyboardInterrupt`` and leaves the thread
    to end by itself. ``meanwhile`` is called ten times a second. ``minutes`` is the time that the call has, if that is bounded.
    """
    shown = Progress(progress)
    snapshot: dict[str, Any] = {"line": "", "part": None}
    stopped = False
    try:
        while True:
            try:
                ended = job.wait(0.1)
                for text in job.events():
                    event = json.loads(text)
                    if event.get("event") == "warning":
                        warn(event["text"], 4)
                    else:
                        read(event, snapshot)
                snapshot["step"] = job.step
                snapshot["seconds"] = shown.seconds
                if minutes and snapshot["part"] is not None:
                    snapshot["part"] = min(1.0, max(snapshot["part"], shown.seconds / (60.0 * float(minutes))))
                if not ended:
                    if meanwhile is not None and not stopped:
                        meanwhile()
                    shown.show(dict(snapshot, line=_line(snapshot)))
                    continue
                break
            except KeyboardInterrupt:
                if stopped:
                    raise
                stopped = True
                job.stop()
        if not stopped:
            snapshot.update(part=1.0, **({"line": f"{snapshot['stage']}: all of {snapshot['of']}"} if "stage" in snapshot else {}))
        shown.show_last(dict(snapshot, line=_line(snapshot)))
    finally:
        shown.close()
    result = job.result()
    if stopped:
        warn(news, 4)
    return result, stopped


def _line(snapshot: dict[str, Any]) -> str:
    return f"{snapshot['line']}  {duration(snapshot['seconds'])}".strip()


def read_training(event: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Events of a fit."""
    kind = event.get("event")
    if kind == "started":
        snapshot["max_steps"] = event["max_steps"]
    elif kind == "surrogate":
        which = f" {event['number']} of {event['of']}" if event["of"] > 1 else ""
        snapshot["line"] = f"surrogate{which} of the simulator"
    elif kind == "imitated":
        snapshot["line"] = f"the surrogate explains {100 * event['explained']:.1f} % of the variance of the given columns"
    elif kind == "warmed":
        snapshot["warm_steps"] = event["step"]
        snapshot["line"] = f"warm start of {event['step']} steps: validation NLL {event['best_valid_nll']:.4f}"
    elif kind == "validated":
        snapshot.update({name: value for name, value in event.items() if name != "event"})
        warm, most = snapshot.get("warm_steps", 0), snapshot.get("max_steps") or 0
        snapshot["part"] = (event["step"] - warm) / (most - warm) if most > warm else None
        snapshot["line"] = (
            f"{snapshot.get('block', '')}epoch {event['epoch']:.1f}  validation NLL {event['valid_nll']:.4f} "
            f"(best {event['best_valid_nll']:.4f})  learning rate {event['learning_rate']:.1e}"
        )
    elif kind == "block":
        snapshot["block"] = f"block {event['number']} of {event['of']}  "
    elif kind in ("trials", "members"):
        snapshot.update(line=f"{event['of']} {kind}", part=0.0, what=kind[:-1])
    elif kind == "part-validated":
        snapshot.update({name: value for name, value in event.items() if name not in ("event", "done")}, part=event["done"])
        snapshot["line"] = (
            f"{snapshot.get('block', '')}{snapshot.get('what', 'part')} {event['number']} of {event['of']}  step {event['step']}  "
            f"validation NLL {event['valid_nll']:.4f} (best {event['best_valid_nll']:.4f})"
        )
    elif kind == "chosen":
        snapshot.update(line=f"chosen: {event['text']}", chosen=event["text"])


def read_check(event: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Events of a check."""
    if event.get("event") == "started":
        snapshot.update(stage=event["stage"], of=event["of"], part=0.0, line=f"{event['stage']}: 0 of {event['of']}")
    else:
        most = max(snapshot.get("of", 1), 1)
        snapshot.update(part=event["done"] / most, line=f"{event['stage']}: {event['done']} of {most}")


def read_abc(event: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Events of ABC."""
    kind = event.get("event")
    if kind == "pilot":
        snapshot.update(part=event["done"] / max(event["rows"], 1), line=f"pilot: {event['done']} of {event['rows']}")
    elif kind == "progress":
        snapshot.update(event, part=event["accepted"] / max(event["wanted"], 1))
        snapshot["line"] = (
            f"round {event['round']}  tolerance {event['tolerance']:.4g}  {event['accepted']} of {event['wanted']} "
            f"particles  {event['total_simulations']} simulations"
        )


def read_tune(event: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Events of a search."""
    kind = event.get("event")
    if kind == "started":
        what = "full trainings" if event["rung"] is None else f"pilots, rung {event['rung'] + 1}"
        snapshot.update(what=what, jobs=event["jobs"], done=0, part=0.0, line=f"{what}: 0 of {event['jobs']}")
    elif kind in ("pilot", "final"):
        snapshot["done"] = snapshot.get("done", 0) + 1
        loss = event.get("valid_nll")
        if loss is not None:
            snapshot["best_valid_nll"] = min(loss, snapshot.get("best_valid_nll", loss))
        snapshot["part"] = snapshot["done"] / max(snapshot.get("jobs", 1), 1)
        best = snapshot.get("best_valid_nll")
        tail = "" if best is None else f"  best validation NLL {best:.4f}"
        snapshot["line"] = f"{snapshot.get('what', '')}: {snapshot['done']} of {snapshot.get('jobs', 0)}{tail}"


def read_simulation(event: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Events of a simulation by a built-in model."""
    if event.get("event") == "started":
        snapshot["rows"] = event["rows"]
    else:
        most = max(snapshot.get("rows", 1), 1)
        snapshot.update(part=event["done"] / most, line=f"{event['done']} of {most} rows")
