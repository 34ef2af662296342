"""Runs blocks of rows of a simulator: in this process, in a worker process, or on another machine.

Row i depends on its parameters and its own seed alone, so that a table is the same whatever runs it.
"""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

#: Draws of one row that may be abandoned one after the other.
MOST_ABANDONED = 10_000


class _TimeOut(Exception):
    pass


@dataclass
class Failure:
    """A row without outputs: its number from 0, its parameters, and why."""

    row: int
    parameters: list[float]
    reason: str


@dataclass
class Rows:
    """What became of a block of rows, from row ``first`` on."""

    first: int
    thetas: NDArray[np.float64]
    outputs: NDArray[np.float64]
    names: list[str] | None
    failures: list[Failure] = field(default_factory=list)
    abandoned: int = 0
    seconds: float = 0.0


@dataclass
class Spec:
    """How the simulator is called."""

    simulator: Callable[..., Any]
    parameters: list[str]
    outputs: list[str] | None
    vectorized: bool
    as_array: bool
    takes_seed: bool
    timeout: float | None
    #: Draws the parameters of an abandoned row again: (row, abandoned) → (theta, seed); None where they are given.
    again: Callable[[int, int], tuple[list[float], int]] | None


def takes_seed(simulator: Callable[..., Any]) -> bool:
    """Whether the callable has a second argument."""
    try:
        parameters = inspect.signature(simulator).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return True
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters) > 1


def _reason(error: BaseException) -> str:
    text = str(error).strip().replace("\n", " ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _number(name: Any, value: Any) -> float:
    """An output of a dictionary: a number, or an array that holds one."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if getattr(value, "size", None) == 1 and hasattr(value, "item"):
        value = value.item()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f'output "{name}" is of the type {type(value).__name__}: return a dictionary of numbers, or one array of all') from None


def _answer(answer: Any, names: list[str] | None) -> tuple[list[float], list[str] | None]:
    """The outputs of one row in order, and their names where the answer has them."""
    if type(answer) is dict or isinstance(answer, Mapping):
        if names is None:
            names = [str(name) for name in answer]
        if len(answer) != len(names):
            raise ValueError(f"the simulator returned {list(answer)}, not {names}")
        try:
            return [float(answer[name]) for name in names], names
        except KeyError:
            raise ValueError(f"the simulator returned {list(answer)}, not {names}") from None
        except (TypeError, ValueError):
            return [_number(name, answer[name]) for name in names], names
    if isinstance(answer, (float, int)):
        return [float(answer)], names
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    return np.asarray(answer, dtype=float).ravel().tolist(), names


class _Clock:
    """Ends a row after some seconds: by an alarm in a main thread, by looking at the time afterwards elsewhere."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        main = threading.current_thread() is threading.main_thread()
        self.alarm = seconds is not None and main and hasattr(signal, "setitimer")
        self.old: Any = None

    def __enter__(self) -> "_Clock":
        if self.alarm:
            self.old = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        if self.alarm:
            signal.signal(signal.SIGALRM, self.old)

    def _ring(self, *_: object) -> None:
        raise _TimeOut

    def run(self, call: Callable[[], Any]) -> Any:
        if self.seconds is None:
            return call()
        started = time.perf_counter()
        if self.alarm:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
            try:
                answer = call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        else:
            answer = call()
        if time.perf_counter() - started > self.seconds:
            raise _TimeOut
        return answer


def run_rows(spec: Spec, first: int, thetas: NDArray[np.float64], seeds: NDArray[np.uint64]) -> Rows:
    """Runs the rows from ``first`` on."""
    started = time.perf_counter()
    rows = _many(spec, first, thetas, seeds) if spec.vectorized else _one_by_one(spec, first, thetas, seeds)
    rows.seconds = time.perf_counter() - started
    return rows


def _one_by_one(spec: Spec, first: int, thetas: NDArray[np.float64], seeds: NDArray[np.uint64]) -> Rows:
    simulator, names, with_seed = spec.simulator, spec.parameters, spec.takes_seed
    output_names = spec.outputs
    found: list[list[float] | None] = []
    failures: list[Failure] = []
    abandoned = 0
    thetas = np.array(thetas)
    with _Clock(spec.timeout) as clock:
        for place, (theta, seed) in enumerate(zip(thetas.tolist(), seeds.tolist())):
            row, repeats, outputs = first + place, 0, None
            while True:
                argument: Any = np.asarray(theta) if spec.as_array else dict(zip(names, theta))
                try:
                    if spec.timeout is None:
                        answer = simulator(argument, seed) if with_seed else simulator(argument)
                    else:
                        call = (lambda: simulator(argument, seed)) if with_seed else (lambda: simulator(argument))
                        answer = clock.run(call)
                    if answer is not None:
                        outputs, output_names = _answer(answer, output_names)
                        if not all(map(isfinite, outputs)):
                            bad = next(j for j, value in enumerate(outputs) if not isfinite(value))
                            name = output_names[bad] if output_names else f"number {bad + 1}"
                            failures.append(Failure(row, theta, f"output {name} is {outputs[bad]}"))
                            outputs = None
                        break
                except _TimeOut:
                    failures.append(Failure(row, theta, f"it took longer than {spec.timeout:g} s"))
                    break
                except Exception as error:  # a mistake in one row is recorded, not raised
                    failures.append(Failure(row, theta, _reason(error)))
                    break
                repeats += 1
                abandoned += 1
                if spec.again is None:
                    failures.append(Failure(row, theta, "the simulator has no output here"))
                    break
                if repeats >= MOST_ABANDONED:
                    failures.append(Failure(row, theta, f"{repeats} prior draws were abandoned one after the other"))
                    break
                theta, seed = spec.again(row, repeats)
                thetas[place] = theta
            found.append(outputs)
    return _collected(first, thetas, found, output_names, failures, abandoned)


def _collected(
    first: int,
    thetas: NDArray[np.float64],
    found: Sequence[list[float] | None],
    names: list[str] | None,
    failures: list[Failure],
    abandoned: int,
) -> Rows:
    good = [place for place, outputs in enumerate(found) if outputs is not None]
    width = max((len(found[place] or ()) for place in good), default=len(names or []))
    short = [place for place in good if len(found[place] or ()) != width]
    for place in short:
        reason = f"{len(found[place] or ())} outputs, where another row has {width}"
        failures.append(Failure(first + place, thetas[place].tolist(), reason))
    if short:
        good = [place for place in good if place not in set(short)]
    values = np.full((len(found), width), np.nan)
    if good:
        # All at once: row by row, NumPy would take longer than a quick simulator.
        values[good] = np.array([found[place] for place in good]).reshape(len(good), width)
    failures.sort(key=lambda failure: failure.row)
    return Rows(first, thetas, values, names, failures, abandoned)


def _block(spec: Spec, thetas: NDArray[np.float64], seeds: NDArray[np.uint64]) -> tuple[NDArray[np.float64], list[str] | None]:
    """Outputs of a block of rows by a vectorized simulator; a row of NaN is an abandoned one."""
    argument: Any = thetas if spec.as_array else {name: thetas[:, j] for j, name in enumerate(spec.parameters)}
    answer = spec.simulator(argument, seeds) if spec.takes_seed else spec.simulator(argument)
    names = spec.outputs
    if isinstance(answer, Mapping):
        names = names or [str(name) for name in answer]
        answer = np.column_stack([np.asarray(answer[name], dtype=float) for name in names])
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    values = np.asarray(answer, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(thetas):
        raise ValueError(f"the vectorized simulator returned shape {values.shape} for {len(thetas)} rows")
    return values, names


def _many(spec: Spec, first: int, thetas: NDArray[np.float64], seeds: NDArray[np.uint64]) -> Rows:
    thetas, seeds = np.array(thetas), np.array(seeds)
    failures: list[Failure] = []
    try:
        values, names = _block(spec, thetas, seeds)
        values = np.array(values)
        repeats, abandoned = 0, 0
        while True:
            pending = np.flatnonzero(np.isnan(values).all(axis=1))
            if not len(pending) or spec.again is None:
                break
            repeats += 1
            abandoned += len(pending)
            if repeats >= MOST_ABANDONED:
                break
            for place in pending:
                theta, seed = spec.again(first + int(place), repeats)
                thetas[place], seeds[place] = theta, seed
            values[pending] = _block(spec, thetas[pending], seeds[pending])[0]
        for place in np.flatnonzero(~np.isfinite(values).all(axis=1)):
            values[place] = np.nan
            failures.append(Failure(first + int(place), thetas[place].tolist(), "an output is not finite"))
        return Rows(first, thetas, values, names, failures, abandoned)
    except Exception as error:  # the whole block failed
        reason = _reason(error)
        failures = [Failure(first + place, theta.tolist(), reason) for place, theta in enumerate(thetas)]
        return Rows(first, thetas, np.full((len(thetas), len(spec.outputs or [])), np.nan), spec.outputs, failures)


@dataclass
class Again:
    """Draws abandoned rows again; travels to workers as the prior's blocks."""

    prior: Any
    seed: int

    def __call__(self, row: int, abandoned: int) -> tuple[list[float], int]:
        theta, seed = self.prior._core.again(self.seed, row, abandoned)
        return list(theta), int(seed)


#: The simulator of a worker process that was forked: it need not be pickled.
_OWN: Spec | None = None


def adopt(spec: Spec) -> None:
    """Makes ``spec`` that of this worker process. Ctrl-C is for the driver alone."""
    global _OWN
    _OWN = spec
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_own(first: int, thetas: NDArray[np.float64], seeds: NDArray[np.uint64]) -> Rows:
    """:func:`run_rows` with the simulator of this worker process."""
    assert _OWN is not None, "the worker was started without a simulator"
    return run_rows(_OWN, first, thetas, seeds)
