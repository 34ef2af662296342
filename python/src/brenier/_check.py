"""Verdicts on posteriors, comparisons of samples, and calibration of anyone's draws."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from . import _core
from ._data import Floats, columns_of, source, to_floats
from ._draws import Draws
from ._errors import ShapeError
from ._picture import Picture
from ._progress import ProgressOption
from ._run import read_check, wait
from ._settings import to_json

if TYPE_CHECKING:
    from ._posterior import Posterior


class Verdict:
    """Whether to trust a posterior, with all reasons and figures. Notebooks show the report."""

    def __init__(self, core: _core.Check, posterior: "Posterior") -> None:
        self._core = core
        self.posterior = posterior
        #: Everything that was found, as ``brenier check --json`` writes it.
        self.figures: dict[str, Any] = json.loads(core.json())

    @property
    def trust(self) -> str:
        """``trustworthy``, ``care`` or ``untrustworthy``."""
        return str(self.figures["verdict"]["trust"])

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return str(self.figures["verdict"]["headline"])

    @property
    def findings(self) -> list[dict[str, str]]:
        """All reasons, the gravest first: ``severity``, ``topic`` and ``text``."""
        return list(self.figures["verdict"]["findings"])

    def __bool__(self) -> bool:
        """False where a check speaks clearly against the model."""
        return self.trust != "untrustworthy"

    @property
    def ranks(self) -> dict[str, tuple[Floats, int]]:
        """Ranks of the truth among the draws, pair by pair, and the number of draws, by quantity."""
        names = self._core.quantities
        found = [self._core.ranks(j) for j in range(len(names))]
        return {name: (np.asarray(ranks, dtype=float), draws) for name, (ranks, draws) in zip(names, found)}

    def plot_ranks(self, quantity: str | int = 0, *, bins: int = 20, size: tuple[int, int] = (420, 260)) -> Picture:
        """A histogram of the ranks of one quantity over the band that uniform ranks keep to."""
        place = self._core.quantities.index(quantity) if isinstance(quantity, str) else quantity
        return Picture(self._core.rank_histogram(place, bins, *size))

    def report(self, title: str = "Can this posterior be trusted?", rows: Sequence[int] = ()) -> str:
        """The page, as HTML: verdict, reasons, pictures, and the posterior at some rows (from 1) of the held-out table."""
        return self._core.report(title, list(rows))

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the page (``.html``) or the figures (``.json``)."""
        text = self._core.json_pretty() if os.fspath(path).endswith(".json") else self.report(**options)
        _core.write_bytes(os.fspath(path), text.encode())

    def to_json(self) -> str:
        """The figures, byte for byte as the command writes them."""
        return self._core.json_pretty()

    def to_arviz(self) -> Any:
        """PIT values of the parameters as the group ``prior_sbc``, for ArviZ's ``plot_ecdf_pit``."""
        from ._arviz import verdict_to_arviz

        return verdict_to_arviz(self)

    def __repr__(self) -> str:
        marks = {"good": "ok  ", "note": "note", "care": "care", "bad": "BAD "}
        lines = [f"{self.trust.upper()}: {self.headline}"]
        return "\n".join(lines + [f"{marks.get(one['severity'], '')}  {one['text']}" for one in self.findings])

    def _repr_html_(self) -> str:
        page = html.escape(self.report(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:1px solid #ccc" title="brenier report"></iframe>'


def check(
    posterior: "Posterior",
    held_out: Any,
    simulator: Callable[..., Any] | str | None,
    others: Mapping[str, "Posterior"],
    executor: Any,
    vectorized: bool,
    as_array: bool,
    timeout: float | None,
    drop_missing: bool,
    progress: ProgressOption,
    settings: dict[str, Any],
) -> Verdict:
    """See :meth:`Posterior.check`."""
    from ._simulate import core_simulator

    core, evaluator = None, None
    if simulator is not None:
        core, evaluator = core_simulator(
            simulator, None, posterior.target_names, posterior.given_names, executor, vectorized, as_array, timeout
        )
    try:
        named = None if isinstance(held_out, (str, os.PathLike)) else columns_of(held_out)
        if named is None and not isinstance(held_out, (str, os.PathLike)):
            raise ShapeError("held_out: expected a table with the model's columns, or two arrays: check(theta, x)")
        models = [(name, other._core) for name, other in others.items()]
        rows = source(held_out)
        job = _core.start_check(posterior._core, rows, to_json(settings), core, models, drop_missing)
        found, _ = wait(job, progress, read_check, "the check was complete before it could be stopped")
    finally:
        if evaluator is not None:
            evaluator.close()
    return Verdict(found, posterior)


class Comparison:
    """How two samples differ: a classifier's accuracy, kernel and transport distances, and tests."""

    def __init__(self, figures: dict[str, Any]) -> None:
        #: The probability of differences as clear if both samples come from one distribution.
        self.p_value = float(figures["p_value"])
        #: All figures.
        self.figures: dict[str, Any] = figures["comparison"]

    @property
    def c2st(self) -> float:
        """Accuracy of a classifier that tells the samples apart: ½ for equal ones."""
        return float(self.figures["c2st"]["accuracy"])

    def __repr__(self) -> str:
        return f"<brenier.Comparison, C2ST {self.c2st:.3f}, p = {self.p_value:.3g}>"


def compare(p: Any, q: Any, **settings: Any) -> Comparison:
    """Compares two samples of the same columns; weights of draws are taken into account."""
    def rows(sample: Any) -> tuple[Floats, Any]:
        if isinstance(sample, Draws):
            return np.ascontiguousarray(sample._each()[0]), sample._weighted()
        values = to_floats(sample, "sample")
        return (values[:, None] if values.ndim == 1 else values), None

    (left, p_weights), (right, q_weights) = rows(p), rows(q)
    return Comparison(json.loads(_core.compare(left, right, to_json(settings), p_weights, q_weights)))


class Calibration:
    """Whether draws are calibrated."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self.p_value = float(figures["p_value"])
        self.passes = bool(figures["passes"])
        #: All figures.
        self.figures: dict[str, Any] = figures["calibration"]

    def __bool__(self) -> bool:
        return self.passes

    def __repr__(self) -> str:
        return f"<brenier.Calibration, {'no check speaks against the draws' if self.passes else 'not calibrated'}, p = {self.p_value:.3g}>"


def calibrate(truth: Any, draws: Any, given: Any = None, *, level: float = 0.05, seed: int = 0) -> Calibration:
    """Whether anyone's draws are calibrated.

    ``truth`` has one row of true parameters for each pair, ``draws`` the shape (pairs, draws, parameters), and ``given`` the values
    that each pair was conditioned on.
    """
    values, drawn = to_floats(truth, "truth"), to_floats(draws, "draws")
    values = values[:, None] if values.ndim == 1 else values
    if drawn.ndim != 3 or drawn.shape[0] != len(values) or drawn.shape[2] != values.shape[1]:
        raise ShapeError(f"draws: expected ({len(values)}, draws, {values.shape[1]}), got {drawn.shape}")
    conditions = np.empty((len(values), 0)) if given is None else to_floats(given, "given")
    conditions = conditions[:, None] if conditions.ndim == 1 else conditions
    settings = {"draws": drawn.shape[1], "level": level, "seed": seed}
    flat = np.ascontiguousarray(drawn.reshape(-1, drawn.shape[2]))
    return Calibration(json.loads(_core.calibrate(values, flat, conditions, to_json(settings))))
