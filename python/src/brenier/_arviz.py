"""Draws and verdicts for ArviZ: ``InferenceData`` in its 0.x line, ``DataTree`` in 1.x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from ._data import columns_of
from ._errors import ShapeError

if TYPE_CHECKING:
    from ._check import Verdict
    from ._draws import Draws

#: Rows of a prior group at most.
MOST_PRIOR = 2000


def _built(groups: dict[str, dict[str, Any]], dims: dict[str, list[str]], coords: dict[str, Any], attributes: dict[str, Any]) -> Any:
    import arviz

    attributes = {name: value for name, value in attributes.items() if isinstance(value, (str, int, float))}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups, dims=dims, coords=coords, attrs={"/": attributes})
    standard = {"posterior", "sample_stats", "observed_data", "prior", "posterior_predictive"}
    known: dict[str, Any] = {name: values for name, values in groups.items() if name in standard}
    data = arviz.from_dict(**known, dims=dims, coords=coords, attrs=attributes) if known else arviz.InferenceData(attrs=attributes)
    for name in groups.keys() - standard:
        data.add_groups({name: arviz.dict_to_dataset(groups[name], dims=dims, coords=coords)}, warn_on_custom_groups=False)
    return data


def draws_to_arviz(draws: "Draws", prior: Any = None, posterior_predictive: Mapping[str, Any] | None = None) -> Any:
    """One chain: variables of shape (1, draws), or (1, draws, observation)."""
    values = draws.values
    several = values.ndim == 3
    if draws.weights is not None:
        raise ShapeError("to_arviz: particles have weights, which ArviZ does not know: resample them first")
    if several and not np.isfinite(values).all():
        raise ShapeError("to_arviz: some draws could not be computed: draw again, or leave out the observations concerned")
    side = (lambda own: own.T[None]) if several else (lambda own: own[None])
    posterior = {name: side(values[..., j]) for j, name in enumerate(draws.names)}
    groups: dict[str, dict[str, Any]] = {"posterior": posterior}
    stats = {"lp": draws.log_prob, "residual": draws.residuals, "iterations": draws.iterations}
    stats = {name: side(np.asarray(own)) for name, own in stats.items() if own is not None}
    if stats:
        groups["sample_stats"] = stats
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    if several:
        coords["observation"] = np.arange(values.shape[0])
        dims |= {name: ["observation"] for name in [*draws.names, *stats]}
    if draws.observed is not None and draws.given_names:
        rows = draws.observed if several else draws.observed[0]
        groups["observed_data"] = {name: np.asarray(rows[..., j]) for j, name in enumerate(draws.given_names)}
        if several:
            dims |= {name: ["observation"] for name in draws.given_names}
    if prior is not None:
        named = dict(columns_of(prior) or [(name, np.asarray(prior)[:, j]) for j, name in enumerate(draws.names)])
        rows = {name: np.asarray(named[name], dtype=float) for name in draws.names if name in named}
        groups["prior"] = {name: own[:: max(1, -(-len(own) // MOST_PRIOR))][None] for name, own in rows.items()}
        if several:
            raise ShapeError("to_arviz: a prior belongs to draws at one observation")
    if posterior_predictive is not None:
        groups["posterior_predictive"] = {str(name): np.asarray(own)[None] for name, own in posterior_predictive.items()}
    return _built(groups, dims, coords, draws.attributes)


def verdict_to_arviz(verdict: "Verdict") -> Any:
    """PIT values (rank + ½)/(draws + 1) of the parameters, shape (1, pairs), as the group ``prior_sbc``."""
    names = set(verdict.posterior.target_names)
    pit = {name: ((ranks + 0.5) / (draws + 1.0))[None] for name, (ranks, draws) in verdict.ranks.items() if name in names}
    attributes = verdict.posterior._attributes() | {"trust": verdict.trust}
    return _built({"prior_sbc": pit}, {}, {}, attributes)
