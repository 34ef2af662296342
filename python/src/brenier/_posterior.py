"""Fits and posteriors."""

from __future__ import annotations

import hashlib
import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._data import Columns, Floats, Table, columns_of, core_table, is_path, quoted, selection, source, to_array, to_floats
from ._draws import Draws, place_of
from ._errors import ColumnError, FileError, SettingError, ShapeError
from ._picture import Picture
from ._progress import ProgressOption
from ._run import read_training, wait, warn
from ._settings import to_json, whole
from ._simulate import Simulations

if TYPE_CHECKING:
    from ._check import Verdict

#: Percentile of the training distribution beyond which an observation is extrapolation.
EXTREME = 0.999


#: Why a training ended, in words.
_ENDED = {"minutes": "its time was used up", "epochs": "its epochs were used up", "steps": "its steps were used up"}


@dataclass
class Mode:
    """The highest point of a posterior that was found."""

    #: The point: one row for each observation, or the row of the only one.
    point: Floats
    names: list[str]
    #: log π(x | y) there.
    log_prob: Any
    #: Starts that ended there, of all starts.
    agreeing: Any
    starts: Any
    #: Whether the point is certain to be a maximum.
    settled: Any = True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.point, dtype=dtype) if copy else np.asarray(self.point, dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        return self.point[..., place_of(key, self.names)] if isinstance(key, str) else self.point[key]

    def to_dict(self) -> dict[str, Any]:
        """The point by names."""
        return {name: float(self.point[j]) if self.point.ndim == 1 else self.point[..., j] for j, name in enumerate(self.names)}


class Posterior:
    """A trained posterior π(x | y), or a density π(x) where nothing is given.

    It is made by :func:`fit` or :func:`load`. Everything is in the units of the columns it was fitted to.
    """

    def __init__(self, core: _core.Posterior) -> None:
        self._core = core
        self._document: dict[str, Any] | None = None

    @property
    def target_names(self) -> list[str]:
        """The columns whose distribution it is."""
        return self._core.target_names

    @property
    def given_names(self) -> list[str]:
        """The columns that it is conditioned on."""
        return self._core.given_names

    @property
    def method(self) -> str:
        """The method that it was fitted with."""
        return self._core.method

    @property
    def header(self) -> dict[str, Any]:
        """The document of the model file: settings, transforms, training."""
        if self._document is None:
            self._document = json.loads(self._core.header())
        return self._document

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the fit, with every choice made."""
        return dict(self.header["settings"])

    @property
    def training(self) -> dict[str, Any]:
        """How the training went: why it ended, its steps, its best validation loss."""
        return dict(self.header["training"])

    @property
    def history(self) -> Table:
        """Every validation of the training."""
        names = ["step", "epoch", "train_nll", "valid_nll", "best_valid_nll", "learning_rate", "drops"]
        return Table(names, self._core.history())

    @property
    def dependence(self) -> dict[str, list[str]] | None:
        """The columns that each target column depends on besides itself, where the method leaves some out, as ATM does.

        Target columns are in order: each depends on given columns and on target columns before it. None where every column
        counts; of an ensemble, that of its first member.
        """
        found = self._core.dependence()
        return None if found is None else dict(found)

    @property
    def marginal(self) -> "Posterior | None":
        """The density of the given columns alone, of a joint model."""
        own = self._core.marginal
        return None if own is None else Posterior(own)

    # -- Questions ------------------------------------------------------------------------------------------------

    def sample(
        self,
        y: Any = None,
        n: int = 1000,
        *,
        seed: int = 0,
        log_prob: bool = False,
        strict: bool = False,
        **settings: Any,
    ) -> Draws:
        """Draws from π(· | y): shape (n, parameters), or (observations, n, parameters) for several rows of y.

        ``y`` is a row of the given columns (an array, a dictionary or a number), or several (a 2-D array, a data frame, a file).
        Each observation has a random stream of its own. Draws that could not be computed are left out with a warning, or are
        NaN where there are several observations; ``strict=True`` makes them an error. Further keyword arguments are
        those of the method's solver: ``tolerance``, ``solver``, ``precision``, ``steps``, ``accuracy``, ``residuals``.
        """
        n, seed = whole(n, "n", 1), whole(seed, "seed")
        text = to_json({**settings, "skip_unsolved": not strict})
        given, single = self._given(y)
        self._warn_of_extremes(given)
        values, observation, residuals, iterations, unsolved = self._core.sample(given, len(given), n, seed, text)
        if unsolved:
            asked = n * len(given)
            if len(unsolved) == asked:
                from ._errors import NumericalError

                raise NumericalError(f"none of {asked} draws could be solved (the smallest residual is {min(unsolved):.1e})")
            warn(f"{len(unsolved)} of {asked} draws could not be solved (the largest residual is {max(unsolved):.1e}) and are left out; strict=True makes this an error", 2)
        density = None
        if log_prob:
            density = self._core.log_density(values, np.ascontiguousarray(given[observation]))[0]
        parts: dict[str, Any] = {"log_prob": density, "residuals": residuals, "iterations": iterations}
        parts = {name: part for name, part in parts.items() if part is not None and len(part)}
        if not single:
            # Each observation's draws are one block, shorter where some are left out.
            place = np.arange(len(observation)) - np.searchsorted(observation, observation)
            grid = lambda own, fill: _scattered(own, observation, place, (len(given), n), fill)  # noqa: E731
            values = grid(values, np.nan)
            parts = {name: grid(part.astype(float), np.nan) for name, part in parts.items()}
        return Draws(
            values, self.target_names, observed=given if self.given_names else None, given_names=self.given_names,
            attributes=self._attributes() | {"draw_seed": seed}, **parts,
        )

    def sample_joint(self, n: int = 1000, *, seed: int = 0, **settings: Any) -> Table:
        """Draws of target and given columns together, of a joint model."""
        target, given, unsolved = self._core.sample_joint(whole(n, "n", 1), whole(seed, "seed"), to_json({**settings, "skip_unsolved": True}))
        if unsolved:
            warn(f"{len(unsolved)} of {n} draws could not be solved and are left out", 2)
        return Table(self.target_names + self.given_names, np.hstack([target, given]))

    def log_prob(self, x: Any, y: Any = None, *, grad: bool = False, joint: bool = False) -> Any:
        """log π(x | y) of rows of x, −∞ outside the support; with ``grad=True`` also the gradient in x.

        ``y`` is one observation for all rows of x, or one row for each row of x; draws of shape (observations, n, parameters)
        take one row for each observation. ``joint=True`` gives log π(x, y) of a joint model.
        """
        values = self._target(x)
        shape = values.shape[:-1]
        given, single = self._given(y)
        rows = int(np.prod(shape, dtype=int))
        flat = np.ascontiguousarray(values.reshape(rows, len(self.target_names)))
        if single or len(given) == 1:
            each = np.broadcast_to(given, (rows, given.shape[1]))
        elif values.ndim == 3 and len(given) == shape[0]:
            each = np.repeat(given, shape[1], axis=0)
        elif len(given) == rows:
            each = given
        elif rows == 1:
            flat, each, shape = np.repeat(flat, len(given), axis=0), given, (len(given),)
        else:
            raise ShapeError(f"log_prob: expected one observation or {shape[0] if values.ndim == 3 else rows}, got {len(given)}")
        each = np.ascontiguousarray(each)
        if grad:
            if joint:
                raise SettingError("setting grad: the gradient is that of log π(x | y): leave out joint")
            density, gradient = self._core.log_density_gradient(flat, each)
            return _shaped(density, shape), gradient.reshape(*shape, len(self.target_names))
        if joint:
            conditional, marginal = self._core.log_density_joint(flat, each)
            return _shaped(conditional + marginal, shape)
        return _shaped(self._core.log_density(flat, each)[0], shape)

    def map(self, y: Any = None, *, seed: int = 0, **settings: Any) -> Mode:
        """The highest point of the density at y (MAP), found from several starts by the exact gradient.

        Of several observations those without a maximum have a row of NaN and a warning; where there is no other, it is an error.
        """
        given, single = self._given(y)
        self._warn_of_extremes(given)
        points, rest = self._core.mode(given, len(given), whole(seed, "seed"), to_json(settings))
        found = json.loads(rest)
        for one in found:
            if one["warning"] is not None:
                warn(one["warning"], 2)

        def column(name: str, without: Any) -> Any:
            values = [one.get(name, without) for one in found]
            return values[0] if single else np.array(values)

        each = column("log_prob", np.nan), column("agreeing", 0), column("starts", 0), column("settled", False)
        return Mode(points[0] if single else points, self.target_names, *each)

    def predict_quantiles(self, y: Any, probabilities: Sequence[float] = (0.05, 0.5, 0.95), *, n: int = 1000, seed: int = 0) -> Floats:
        """Quantiles of each parameter at each row of y: shape (rows, probabilities, parameters)."""
        draws = self.sample(y, n, seed=seed)
        each = np.asarray(draws.quantile(list(probabilities)))
        return np.moveaxis(each, 0, 1) if each.ndim == 3 else each[None]

    def distances(self, y: Any) -> list[dict[str, Any]] | None:
        """How far each observation lies from the training rows; None where the model cannot tell."""
        given, _ = self._given(y)
        found = self._core.distances(given, len(given)) if self.given_names else None
        return None if found is None else [{"percentile": p, "column": column, "deviations": d} for p, column, d in found]

    def disagreement(self, y: Any, *, seed: int = 0) -> Floats:
        """How far the members of an ensemble disagree at each observation, in nats; zeros for a single map."""
        given, _ = self._given(y)
        return self._core.disagreement(given, len(given), seed)

    def check(
        self,
        held_out: Any,
        x: Any = None,
        *,
        simulator: Callable[..., Any] | str | None = None,
        others: Mapping[str, "Posterior"] | None = None,
        executor: Any = None,
        vectorized: bool = False,
        as_array: bool = False,
        timeout: float | None = None,
        drop_missing: bool = False,
        progress: ProgressOption = True,
        **settings: Any,
    ) -> "Verdict":
        """Whether to trust the model: every check on held-out pairs, and one verdict with its reasons.

        ``held_out`` is a table with the model's columns, or two arrays (theta, x) as in ``fit``. With a ``simulator``, the
        callable of :func:`simulate`, posterior predictives are checked too. Further keyword arguments are the settings of a
        check: ``pairs``, ``draws``, ``level``, ``predictive_observations``, ``predictive_draws``, ``seed``.
        """
        from ._check import check

        if x is not None:
            held_out = self._pairs(held_out, x)
        return check(self, held_out, simulator, others or {}, executor, vectorized, as_array, timeout, drop_missing, progress, settings)

    # -- Files and other tools ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model file, whole or not at all."""
        self._core.save(os.fspath(path))

    def to_bytes(self) -> bytes:
        """The bytes of the model file."""
        return self._core.to_bytes()

    @staticmethod
    def from_bytes(content: bytes) -> "Posterior":
        """The model whose file has these bytes."""
        return Posterior(_core.Posterior.from_bytes(content))

    def hash(self) -> str:
        """SHA-256 of the model file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_sbi(self, prior: Any = None) -> Any:
        """The posterior as one of sbi's, for its diagnostics and plots; ``prior`` is a torch distribution or a :class:`Prior`."""
        from ._sbi import to_sbi

        return to_sbi(self, prior)

    def plot_learning(self, size: tuple[int, int] = (560, 300)) -> Picture:
        """Training and validation loss over the steps."""
        history = self.history
        lines: list[tuple[str, list[float], list[float], bool]] = []
        for label, column, dashed in (("training", "train_nll", True), ("validation", "valid_nll", False)):
            finite = np.isfinite(history[column])
            if finite.any():
                lines.append((label, history["step"][finite].tolist(), history[column][finite].tolist(), dashed))
        return Picture(_core.curve_plot("step", "negative log-likelihood", lines, *size))

    def __reduce__(self) -> Any:
        return (Posterior.from_bytes, (self.to_bytes(),))

    def __copy__(self) -> "Posterior":
        return Posterior(self._core)

    def __deepcopy__(self, _: Any) -> "Posterior":
        return Posterior(self._core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Posterior) and (self._core is other._core or self.to_bytes() == other.to_bytes())

    def __hash__(self) -> int:
        return hash(self.hash())

    def __repr__(self) -> str:
        given = f" | {', '.join(self.given_names[:6])}{', …' if len(self.given_names) > 6 else ''}" if self.given_names else ""
        return f"<brenier.Posterior π({', '.join(self.target_names[:6])}{given}), {self._core.title}, validation NLL {self.training['best_valid_nll']:.4f}>"

    def _repr_html_(self) -> str:
        training = self.training
        supports = ", ".join(f"{html.escape(name)}: {html.escape(text)}" for name, text in self.supports.items() if text != "real")
        rows = {
            "target": html.escape(", ".join(self.target_names)),
            "given": html.escape(", ".join(self._core.given_columns[:20]) or "nothing"),
            "supports": supports or "all real numbers",
            "method": f"{html.escape(self._core.title)}: {html.escape(self._core.description)}, {self._core.parameters} parameters",
            "rows": f"{training['train_rows']} trained on, {training['valid_rows']} held out for validation",
            "validation NLL": f"{training['best_valid_nll']:.4f} (standardised units)",
            "ended": f"{html.escape(_ENDED.get(training['stop'], str(training['stop'])))} after {training['steps']} steps, best at {training['best_step']}",
        }
        if self.header.get("members"):
            rows["members"] = str(len(self.header["members"]))
        body = "".join(f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{text}</td></tr>" for name, text in rows.items())
        picture = self.plot_learning().svg if len(self.history) > 1 else ""
        return f"<div><table>{body}</table>{picture}</div>"

    @property
    def supports(self) -> dict[str, str]:
        """The support of each target column."""
        rules = [rule for rule in self.settings.get("support", [])]
        found = {name: "real" for name in self.target_names}
        for rule in rules:
            name, _, text = str(rule).rpartition("=")
            name = name[1:-1].replace('""', '"') if name.startswith('"') else name
            if name in found:
                found[name] = text
        return found

    # -- Inputs ---------------------------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, Any]:
        header = self.header
        return {"library": "brenier", "version": _core.__version__, "method": self.method, "seed": header["seed"], "data_sha256": header["data_sha256"]}

    def _given(self, y: Any) -> tuple[Floats, bool]:
        """Rows of the given columns, and whether y was a single observation."""
        names, raw = self.given_names, self._core.given_columns
        m = len(names)
        if not m:
            if y is not None:
                raise ShapeError("the model is a density of its own, without given columns: leave out y")
            return np.empty((1, 0)), True
        if y is None:
            raise ShapeError(f"the model is conditional on {', '.join(raw[:20])}: say at which values")
        if is_path(y):
            return self._core.given_rows(os.fspath(y)), False
        if isinstance(y, Mapping):
            single = all(np.ndim(to_array(value)) == 0 for value in y.values())
            return self._core.given_rows(core_table(dict(y))), single
        if type(y).__name__ == "Series" and hasattr(y, "to_dict") and hasattr(y, "index"):  # a row of a data frame
            return self._given({str(name): value for name, value in y.to_dict().items()})
        if columns_of(y) is not None:
            return self._core.given_rows(core_table(y)), False
        values = to_floats(y, "y")
        if values.ndim == 0:
            values = values[None]
        if values.ndim == 1 and len(values) == m:
            return values[None], True
        if values.ndim == 1 and m == 1:
            return np.ascontiguousarray(values[:, None]), False
        if values.ndim == 2 and values.shape[1] == m:
            return values, False
        raise ShapeError(f"y: expected rows of the {m} given columns {', '.join(names[:20])}, got an array of shape {values.shape}")

    def _target(self, x: Any) -> Floats:
        """Rows of the target columns."""
        n = len(self.target_names)
        if isinstance(x, Draws):
            x = x.values
        if isinstance(x, Mode):
            x = x.point
        named = None if is_path(x) else columns_of(x)
        if named is not None:
            have = dict(named)
            if missing := [name for name in self.target_names if name not in have]:
                raise ColumnError(f'x has no column "{missing[0]}"')
            single = isinstance(x, Mapping) and all(np.ndim(to_array(value)) == 0 for value in x.values())
            rows = np.column_stack([to_floats(have[name], name) for name in self.target_names])
            return rows[0] if single else rows
        values = to_floats(x, "x")
        if values.ndim == 0 and n == 1:
            values = values[None]
        if values.ndim == 1 and n == 1 and len(values) != 1:
            values = values[:, None]
        if values.ndim not in (1, 2, 3) or values.shape[-1] != n:
            raise ShapeError(f"x: expected rows of {n} ({', '.join(self.target_names[:20])}), got an array of shape {values.shape}")
        return values

    def _pairs(self, theta: Any, x: Any) -> Table:
        """Two arrays, or two data frames, as one table of the model's columns."""
        sides = []
        for data, names in ((theta, self.target_names), (x, self.given_names)):
            named = columns_of(data)
            if named is not None:
                have = dict(named)
                if missing := [name for name in names if name not in have]:
                    raise ColumnError(f'there is no column "{missing[0]}"')
                sides.append(np.column_stack([to_floats(have[name], name) for name in names]))
                continue
            values = to_floats(data, "pairs")
            sides.append(values[:, None] if values.ndim == 1 else values)
        return Table(self.target_names + self.given_names, np.hstack(sides))

    def _warn_of_extremes(self, given: Floats) -> None:
        if not self.given_names or not np.isfinite(given).all():
            return
        found = self._core.distances(given, len(given)) or []
        extreme = [(row, one) for row, one in enumerate(found) if one[0] > EXTREME]
        if len(extreme) <= len(found) // 200:
            return
        row, (percentile, column, deviations) = extreme[0]
        more = f" (and so do {len(extreme) - 1} more observations)" if len(extreme) > 1 else ""
        warn(
            f"observation {row + 1} lies farther out than {min(100 * percentile, 99.99):.2f} % of the training distribution ({column} is "
            f"{abs(deviations):.3g} standard deviations from its mean): the answer there is extrapolation{more}",
            3,
        )


def _scattered(own: NDArray[Any], observation: Any, place: Any, shape: tuple[int, int], fill: float) -> NDArray[Any]:
    grid = np.full(shape + own.shape[1:], fill)
    grid[observation, place] = own
    return grid


def _shaped(values: Floats, shape: tuple[int, ...]) -> Any:
    return values.reshape(shape) if shape else float(values[0])


def load(path: str | os.PathLike[str]) -> Posterior:
    """Reads a model file."""
    return Posterior(_core.Posterior.load(os.fspath(path)))


def fit_inputs(
    data: Any, x: Any, target: Columns | None, given: Columns | None, support: Any, categorical: Columns | None, config: Any, settings: dict[str, Any]
) -> tuple[Any, str, str | None]:
    """Source of rows, settings as JSON, and the text of a settings file: for fits and searches."""
    if x is not None:
        if target is not None or given is not None:
            raise SettingError("setting target: two arrays say which columns are target and given: leave out target and given")
        data, target, given = _two_sides(data, x)
    if isinstance(data, Simulations) and data.prior is not None:
        if target is None:
            target = data.prior.names
            given = "rest" if given is None else given
        if support is None:
            names = set(target.split(",")) if isinstance(target, str) else set(target)
            support = {name: text for name, text in data.prior.supports.items() if name in names and text != "real"}
    document: dict[str, Any] = dict(settings)
    for name, columns in (("target", target), ("given", given), ("categorical", categorical)):
        if columns is not None and len(columns):
            document[name] = selection(columns)
    if support:
        document["support"] = [f"{quoted(name)}={text}" for name, text in support.items()] if isinstance(support, Mapping) else [support] if isinstance(support, str) else list(support)
    text = None
    if config is not None:
        try:
            with open(config, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise FileError(f"{os.fspath(config)}: cannot read the settings: {error.strerror}") from error
        import tomllib

        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"{os.fspath(config)}: {error}") from None
    return source(data), to_json(document), text


def _two_sides(theta: Any, x: Any) -> tuple[dict[str, NDArray[Any]], list[str], list[str]]:
    """One table of two, and the columns of either."""
    sides: list[dict[str, NDArray[Any]]] = []
    for data, default in ((theta, "theta"), (x, "x")):
        named = columns_of(data)
        if named is None:
            values = to_floats(data, default)
            values = values[:, None] if values.ndim == 1 else values
            if values.ndim != 2:
                raise ShapeError(f"{default}: expected rows and columns, got an array of {values.ndim} axes")
            named = [(f"{default}_{j + 1}", values[:, j]) for j in range(values.shape[1])]
        sides.append(dict(named))
    left, right = sides
    for name in left:
        if name in right:
            raise ColumnError(f'theta and x: both have a column "{name}": rename one')
    rows = [len(next(iter(side.values()), ())) for side in sides]
    if rows[0] != rows[1]:
        raise ShapeError(f"theta and x: expected as many rows of each, got {rows[0]} and {rows[1]}")
    return left | right, list(left), list(right)


def fit(
    data: Any,
    x: Any = None,
    *,
    target: Columns | None = None,
    given: Columns | None = None,
    method: str | Mapping[str, Any] | None = None,
    quick: bool = False,
    support: Any = None,
    categorical: Columns | None = None,
    config: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    drop_missing: bool = False,
    progress: ProgressOption = True,
    **settings: Any,
) -> Posterior:
    """Fits a posterior π(target | given) to pairs.

    Parameters
    ----------
    data
        A table: the result of :func:`simulate`, a data frame (pandas, polars, pyarrow), a dictionary of columns, a 2-D array
        (columns ``x_1``, ``x_2``, …) or the path of a file.
    x
        With two arrays, ``fit(theta, x)`` learns theta given x.
    target, given
        Columns to learn and to condition on: names, or a selection such as ``"x1..x4"`` or ``"rest"``. Without ``given`` the
        fit is the density of the target. Of simulations the target is the prior's parameters, given the rest, unless said
        otherwise.
    method
        One of :func:`methods`, or ``"auto"`` (the default): trials choose one by validation rows, and an ensemble of it
        is fitted where that pays. A setting of a method without its name, such as ``feature_width``, means ``"pcp-map"``.
    quick
        One plain training, the same as ``method="pcp-map"``, instead of trials and an ensemble.
    support
        What values columns may take, as in ``{"rate": "log", "p": "interval(0,1)"}``. Of simulations that of the prior.
    categorical
        Those of the given columns that hold categories.
    config
        A settings file (TOML), which keyword arguments override.
    checkpoint, resume
        Keeps the state of the training in a file, and continues from it.
    progress
        ``True``, ``False`` or a callable that receives snapshots.
    **settings
        The settings of the settings file: ``minutes``, ``epochs``, ``seed``, ``batch_size``, ``learning_rate``, ``members``,
        ``joint``, ``pca``, ``scaling``, ``asinh``, …, and those of the method, such as ``feature_width``.

    Ctrl-C ends the training and returns the best model so far with a warning; a second one raises.
    """
    if quick and method is not None:
        raise SettingError("setting quick: it is the same as method=\"pcp-map\": leave one of the two out")
    settings["method"] = "pcp-map" if quick else dict(method) if isinstance(method, Mapping) else method
    rows, document, text = fit_inputs(data, x, target, given, support, categorical, config, settings)
    state = None if checkpoint is None else os.fspath(checkpoint)
    job = _core.start_fit(rows, document, text, state, resume, drop_missing)
    (core, validated, _), stopped = wait(job, progress, read_training, "stopped by Ctrl-C: this is the best model so far", minutes=settings.get("minutes"))
    if stopped and not validated:
        warn("it was stopped before its first validation: the model is hardly better than its initial weights", 2)
    return Posterior(core)


def methods() -> list[dict[str, Any]]:
    """The methods with their settings."""
    return list(json.loads(_core.methods()))


def default_settings() -> dict[str, Any]:
    """The default settings of a fit."""
    return dict(json.loads(_core.default_settings()))
