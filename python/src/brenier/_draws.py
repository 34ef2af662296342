"""Draws from a posterior: an array with names, pictures and ways to other tools."""

from __future__ import annotations

import html
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._data import Floats, Table, to_floats
from ._errors import ColumnError, ShapeError
from ._picture import Picture

#: Rows that a picture shows at most.
MOST_SHOWN = 4000


class Draws:
    """Draws at one observation, shape (draws, parameters), or at several, shape (observations, draws, parameters).

    ``np.asarray(draws)`` is the array, ``draws["rate"]`` one parameter.
    """

    def __init__(
        self,
        values: Any,
        names: Sequence[str],
        *,
        observed: Any = None,
        given_names: Sequence[str] = (),
        log_prob: Any = None,
        residuals: Any = None,
        iterations: Any = None,
        weights: Any = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self.values: Floats = to_floats(values, "draws")
        self.names = list(names)
        if self.values.ndim not in (2, 3) or self.values.shape[-1] != len(self.names):
            raise ShapeError(f"draws: expected (draws, {len(self.names)}) or (observations, draws, {len(self.names)}), got {self.values.shape}")
        #: The observations, one row each.
        self.observed: Floats | None = None if observed is None else to_floats(observed, "observed")
        self.given_names = list(given_names)
        #: log π(x | y) of each draw, where it was asked for.
        self.log_prob: Floats | None = log_prob
        self.residuals: Floats | None = residuals
        self.iterations: NDArray[Any] | None = iterations
        #: Weights of particles; None where draws count alike.
        self.weights: Floats | None = None if weights is None else to_floats(weights, "weights")
        #: Method, seed, version and the like.
        self.attributes = dict(attributes or {})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @property
    def columns(self) -> list[str]:
        """The names, as data frames call them."""
        return self.names

    def to_numpy(self) -> Floats:
        """The array."""
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.values[..., place_of(key, self.names)]
        return self.values[key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draws) and self.names == other.names and np.array_equal(self.values, other.values, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def _each(self) -> list[Floats]:
        """The draws of each observation, without those that could not be computed."""
        groups = self.values[None] if self.values.ndim == 2 else self.values
        return [group[np.isfinite(group).all(axis=1)] for group in groups]

    def _at(self, observation: int) -> Floats:
        """The draws of one observation."""
        each = self._each()
        if not 0 <= observation < len(each):
            raise ShapeError(f"observation: expected a number from 0 to {len(each) - 1}, got {observation}")
        return each[observation]

    def _weighted(self) -> Floats | None:
        return self.weights if self.values.ndim == 2 else None

    def mean(self) -> Floats:
        """Means of the parameters, for each observation."""
        return self._squeezed([np.average(group, axis=0, weights=self._weighted()) for group in self._each()])

    def std(self) -> Floats:
        """Standard deviations of the parameters, for each observation."""
        def one(group: Floats) -> Floats:
            weights = self._weighted()
            middle = np.average(group, axis=0, weights=weights)
            return np.sqrt(np.average((group - middle) ** 2, axis=0, weights=weights))

        return self._squeezed([one(group) for group in self._each()])

    def quantile(self, probability: Any) -> Floats:
        """Quantiles of the parameters, for each observation: the axis of probabilities, if there is one, comes first."""
        found = [_quantile(group, probability, self._weighted()) for group in self._each()]
        return found[0] if self.values.ndim == 2 else np.stack(found, axis=np.ndim(probability))

    def _squeezed(self, each: list[Floats]) -> Floats:
        return each[0] if self.values.ndim == 2 else np.stack(each)

    def to_table(self) -> Table:
        """The draws as rows; those of several observations one after the other, with the column ``observation`` from 1."""
        if self.values.ndim == 2:
            return Table(self.names, self.values)
        count, draws, _ = self.values.shape
        number = np.repeat(np.arange(1.0, count + 1.0), draws)[:, None]
        return Table(["observation", *self.names], np.hstack([number, self.values.reshape(count * draws, -1)]))

    def to_dataframe(self) -> Any:
        """The draws as a pandas data frame."""
        return self.to_table().to_dataframe()

    def to_arviz(self, **further: Any) -> Any:
        """The draws as ArviZ has them: ``InferenceData`` (0.x) or ``DataTree`` (1.x).

        ``prior`` (a table of training rows or prior draws) and ``posterior_predictive`` (a dictionary of arrays whose first
        axis is that of the draws) become groups of their own.
        """
        from ._arviz import draws_to_arviz

        return draws_to_arviz(self, **further)

    def plot_pairs(
        self,
        *,
        truth: Any = None,
        mode: Any = None,
        log: Sequence[str] = (),
        limits: dict[str, tuple[float, float]] | None = None,
        label: str = "posterior",
        others: dict[str, Any] | None = None,
        observation: int = 0,
        size: tuple[int, int] | None = None,
    ) -> Picture:
        """Every pair of parameters, with other samples in further colours."""
        own = self._at(observation)
        shown = own[:: max(1, -(-len(own) // MOST_SHOWN))] if self.weights is None else own
        layers: list[tuple[str, Floats, Any]] = [(label, np.ascontiguousarray(shown), self._weighted())]
        for name, sample in (others or {}).items():
            rows = sample._each()[0] if isinstance(sample, Draws) else to_floats(sample, name)
            layers.append((name, np.ascontiguousarray(rows), getattr(sample, "weights", None)))
        side = 120 * len(self.names) + 100
        width, height = size or (min(side, 900), min(side, 900))
        point = lambda values: None if values is None else _in_order(values, self.names)  # noqa: E731
        places = [place_of(name, self.names) for name in log]
        ends = [(place_of(name, self.names), float(low), float(high)) for name, (low, high) in (limits or {}).items()]
        return Picture(_core.pair_plot(self.names, layers, width, height, point(truth), point(mode), places, ends, []))

    def plot_marginals(self, *, truth: Any = None, observation: int = 0, size: tuple[int, int] | None = None) -> Picture:
        """A histogram of each parameter."""
        own = self._at(observation)
        marks: list[float | None] = [None] * len(self.names) if truth is None else list(_in_order(truth, self.names))
        columns = [(name, own[:, j].tolist(), marks[j]) for j, name in enumerate(self.names)]
        width, height = size or (min(240 * len(self.names), 960), 200 * (1 + (len(self.names) - 1) // 4))
        return Picture(_core.histograms(columns, width, height))

    def summary(self) -> dict[str, dict[str, Any]]:
        """Mean, sd and 5, 50 and 95 % of each parameter, by its name."""
        mean, sd, quantiles = self.mean(), self.std(), self.quantile([0.05, 0.5, 0.95])
        return {
            name: {"mean": mean[..., j], "sd": sd[..., j], "5 %": quantiles[0][..., j], "50 %": quantiles[1][..., j], "95 %": quantiles[2][..., j]}
            for j, name in enumerate(self.names)
        }

    def __repr__(self) -> str:
        if self.values.ndim == 3:
            several = "s" if self.shape[0] != 1 else ""
            return f"<brenier.Draws at {self.shape[0]} observation{several}, {self.shape[1]} each, of {', '.join(self.names)}>"
        wide = max(9, *(len(name) for name in self.names))
        lines = [f"{'parameter':{wide}}  {'mean':>11}  {'sd':>11}  {'5 %':>11}  {'95 %':>11}"]
        for name, row in self.summary().items():
            figures = "  ".join(f"{float(row[key]):11.5g}" for key in ("mean", "sd", "5 %", "95 %"))
            lines.append(f"{name:{wide}}  {figures}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.values.ndim == 3:
            return f"<p>{html.escape(repr(self))}</p>"
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td>" + "".join(f"<td>{float(row[key]):.5g}</td>" for key in ("mean", "sd", "5 %", "50 %", "95 %")) + "</tr>"
            for name, row in self.summary().items()
        )
        head = "<tr><th>parameter</th><th>mean</th><th>sd</th><th>5 %</th><th>50 %</th><th>95 %</th></tr>"
        picture = self.plot_pairs().svg if len(self.names) <= 8 and len(self) > 10 else ""
        return f"<div><p>{self.shape[0]} draws</p><table>{head}{rows}</table>{picture}</div>"


def place_of(name: str, names: Sequence[str]) -> int:
    """The position of a parameter."""
    if name not in names:
        raise ColumnError(f'there is no parameter "{name}" among {", ".join(names)}')
    return list(names).index(name)


def _quantile(group: Floats, probability: Any, weights: Floats | None) -> Floats:
    """Quantiles by linear interpolation; of weighted rows, of the cumulative weights at their middles."""
    if weights is None:
        return np.asarray(np.quantile(group, probability, axis=0))
    def column(values: Floats) -> Floats:
        order = np.argsort(values, kind="stable")
        cumulative = np.cumsum(weights[order])
        return np.interp(probability, (cumulative - 0.5 * weights[order]) / cumulative[-1], values[order])

    return np.stack([np.asarray(column(group[:, j])) for j in range(group.shape[1])], axis=-1)


def _in_order(values: Any, names: Sequence[str]) -> list[float]:
    if isinstance(values, dict):
        if missing := [name for name in names if name not in values]:
            raise ColumnError(f'the point has no value for the parameter "{missing[0]}"')
        return [float(values[name]) for name in names]
    return [float(value) for value in np.ravel(to_floats(values, "point"))]
