"""Searches: settings by pilot trainings, and particles by approximate Bayesian computation."""

from __future__ import annotations

import json
import os
from concurrent.futures import BrokenExecutor, Executor, Future, wait as wait_for
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _core
from ._data import Columns, to_floats
from ._draws import Draws
from ._errors import BrenierError, FileError, SettingError, ShapeError
from ._posterior import Posterior, fit_inputs
from ._prior import Prior
from ._progress import ProgressOption
from ._run import read_abc, read_tune, wait, warn
from ._settings import to_json
from ._simulate import MOST_LOSSES, Where, check_arguments, core_simulator, workers_of
from ._worker import Spec, run_rows, takes_seed


class Tuned:
    """What a search found: the best model and every figure."""

    def __init__(self, best: Posterior, figures: dict[str, Any]) -> None:
        #: The model with the best validation loss.
        self.best = best
        #: Settings of the trials, ``pilots``, ``finals`` (best first), and whether the search is ``complete``.
        self.figures = figures

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the best model."""
        return self.best.settings

    def __repr__(self) -> str:
        return f"<brenier.Tuned, {len(self.figures['trials'])} trials, best validation NLL {self.best.training['best_valid_nll']:.4f}>"

    def _repr_html_(self) -> str:
        return self.best._repr_html_()


#: The search spaces that have names.
SPACES = ("default", "uci", "paper")


def tune(
    data: Any,
    x: Any = None,
    *,
    target: Columns | None = None,
    given: Columns | None = None,
    method: str | Mapping[str, Any] | None = None,
    support: Any = None,
    categorical: Columns | None = None,
    space: str = "default",
    trials: int | None = None,
    pilot_epochs: int | None = None,
    finalists: int | None = None,
    repeats: int | None = None,
    exact: bool = False,
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    config: str | os.PathLike[str] | None = None,
    drop_missing: bool = False,
    progress: ProgressOption = True,
    **settings: Any,
) -> Tuned:
    """Searches for settings by short trainings, and trains the best to the end.

    Data and settings are those of :func:`fit`; ``minutes`` bounds the whole search. ``space`` is ``"default"``, ``"uci"``, ``"paper"`` or a
    search space as TOML. A ``folder`` keeps finished trials, so that the same call continues after an interruption.

    Trials run on the threads of this process, or on the workers of an ``executor`` (process pools, loky, Dask's
    ``client.get_executor()``, MPI), one at a time on each. Workers on other machines must see the ``folder``. The best model is the
    same whatever runs the search.
    """
    settings["method"] = dict(method) if isinstance(method, Mapping) else method
    rows, document, text = fit_inputs(data, x, target, given, support, categorical, config, settings)
    if "=" not in space and space not in SPACES:
        raise SettingError(f'setting space: "{space}" is neither one of {", ".join(SPACES)} nor a search space as TOML')
    own = {"trials": trials, "pilot_epochs": pilot_epochs, "finalists": finalists, "repeats": repeats, "exact": exact}
    import shutil
    import tempfile

    kept = os.path.abspath(folder) if folder is not None else tempfile.mkdtemp(prefix="brenier-tune-")
    news = "stopped by Ctrl-C: this is the best of the trials so far"
    try:
        if executor is None:
            job = _core.start_tune(rows, document, text, space, to_json(own), kept, drop_missing)
            (best, rest), stopped = wait(job, progress, read_tune, news)
        else:
            os.makedirs(kept, exist_ok=True)
            crew = _Crew(executor, (rows, document, text, space, to_json({**own, "join": True, "threads": 1}), kept, drop_missing))
            # This process has no share in the work: it watches the folder and ends when all trials have.
            job = _core.start_tune(rows, document, text, space, to_json({**own, "join": True, "threads": 0}), kept, drop_missing)
            try:
                (best, rest), stopped = wait(job, progress, read_tune, news, crew.look_after)
            finally:
                job.stop()
                crew.dismiss()
    finally:
        if folder is None:
            shutil.rmtree(kept, ignore_errors=True)
    figures = json.loads(rest)
    if best is None:
        failures = [one["failure"] for one in figures["finals"] if one.get("failure")]
        if stopped:
            raise KeyboardInterrupt("the search was stopped before any full training")
        raise BrenierError(f"no training produced a model: {failures[0] if failures else 'the time was used up'}")
    return Tuned(Posterior(best), figures)


#: A file in the folder of a search that asks all workers to stop.
_STOP = "stop"


def join_search(rows: Any, document: str, text: str | None, space: str, tune: str, folder: str, drop_missing: bool) -> None:
    """The share of one worker in a search: trials that nobody else has begun, until there are no more."""
    if not os.path.isdir(folder):
        import platform

        raise FileError(f"{folder}: cannot be seen on {platform.node()}: give tune a `folder` that all workers share")
    job = _core.start_tune(rows, document, text, space, tune, folder, drop_missing)
    while not job.wait(0.5):
        job.events()
        if os.path.exists(os.path.join(folder, _STOP)):
            job.stop()
    job.result()


class _Crew:
    """The workers of an executor that share a search."""

    def __init__(self, executor: Executor, task: tuple[Any, ...]) -> None:
        self.executor, self.task, self.folder = executor, task, task[5]
        self.losses = 0
        self._forget_stop()
        self.futures: list[Future[None]] = [executor.submit(join_search, *task) for _ in range(workers_of(executor))]

    def look_after(self) -> None:
        """Replaces workers that were lost; raises where there is nothing to hope for."""
        for place, future in enumerate(self.futures):
            if not future.done():
                continue
            error = None if future.cancelled() else future.exception()
            if error is None and not future.cancelled():
                continue
            if isinstance(error, BrenierError):
                raise error
            self.losses += 1
            if self.losses > MOST_LOSSES * len(self.futures) or isinstance(error, BrokenExecutor):
                reason = "the task was cancelled" if error is None else f"{type(error).__name__}: {error}"
                raise BrenierError(
                    f"the executor lost its workers ({reason}); finished trials are kept in the `folder`, if one was given, and the "
                    "same call with another executor continues"
                ) from error
            self.futures[place] = self.executor.submit(join_search, *self.task)

    def dismiss(self) -> None:
        """Ends the workers, if they have not ended by themselves."""
        pending = wait_for(self.futures, timeout=2.0).not_done
        if pending:
            with open(os.path.join(self.folder, _STOP), "w", encoding="utf-8"):
                pass
            for future in pending:
                future.cancel()
            wait_for(pending, timeout=60.0)
            self._forget_stop()

    def _forget_stop(self) -> None:
        path = os.path.join(self.folder, _STOP)
        if os.path.exists(path):
            os.remove(path)


def abc(
    simulator: Callable[..., Any] | str,
    prior: Prior | None,
    observed: Any,
    *,
    outputs: Sequence[str] | None = None,
    executor: Where = None,
    vectorized: bool = False,
    as_array: bool = False,
    timeout: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: ProgressOption = True,
    **settings: Any,
) -> Draws:
    """Weighted particles at an observation by approximate Bayesian computation, without any map.

    The simulator is that of :func:`simulate`. ``observed`` is a dictionary of outputs, or an array in their order. Keyword
    arguments are the settings of ABC: ``method`` (``"smc"`` or ``"rejection"``), ``particles``, ``tolerance``, ``max_simulations``,
    ``minutes``, ``seed``, …; one of the last four but ``seed`` says when to end.
    """
    names = list(outputs) if outputs is not None else (list(observed) if isinstance(observed, Mapping) else None)
    if not isinstance(simulator, str):
        check_arguments(simulator, prior, executor, timeout)
        if prior is None:
            raise SettingError("setting prior: say which prior to draw from")
    if names is None and prior is not None and not isinstance(simulator, str):
        spec = Spec(simulator, prior.names, None, vectorized, as_array, takes_seed(simulator), timeout, None)
        probe = run_rows(spec, 0, *prior._core.rows(0, 0, 1))
        if probe.failures:
            raise BrenierError(f"the simulator has no output at a prior draw ({probe.failures[0].reason}): name the `outputs`")
        names = probe.names or [f"y_{j + 1}" for j in range(probe.outputs.shape[1])]
    core, evaluator = core_simulator(simulator, prior, prior.names if prior else [], names or [], executor, vectorized, as_array, timeout)
    try:
        if isinstance(observed, Mapping):
            missing = [name for name in core.outputs if name not in observed]
            if missing:
                raise ShapeError(f'observed: no value for the output "{missing[0]}"')
            row = np.array([float(observed[name]) for name in core.outputs])
        else:
            row = np.ravel(to_floats(observed, "observed"))
        state = None if checkpoint is None else os.fspath(checkpoint)
        job = _core.start_abc(core, np.ascontiguousarray(row), to_json(settings), state)
        (table, rest), _ = wait(job, progress, read_abc, "stopped by Ctrl-C: these are the particles of the last finished round")
    finally:
        if evaluator is not None:
            evaluator.close()
    figures = json.loads(rest)
    for text in figures.pop("warnings"):
        warn(text, 2)
    if table is None:
        raise KeyboardInterrupt("the search was stopped before there were any particles")
    columns, values = table
    dim = len(columns) - 2
    return Draws(
        values[:, :dim], columns[:dim], weights=values[:, dim], observed=row[None], given_names=core.outputs,
        attributes={"library": "brenier", "version": _core.__version__, "method": "abc", "distances": values[:, dim + 1], **figures},
    )
