"""Priors over named parameters, of the kinds that a prior file has."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence

import numpy as np

from . import _core
from ._data import Floats, to_floats
from ._errors import SettingError
from ._settings import plain, whole

#: A distribution without its parameter's name.
Block = dict[str, Any]


def uniform(low: float, high: float) -> Block:
    """θ ~ U(low, high)."""
    return {"kind": "uniform", "low": float(low), "high": float(high)}


def log_uniform(low: float, high: float) -> Block:
    """ln θ ~ U(ln low, ln high)."""
    return {"kind": "log-uniform", "low": float(low), "high": float(high)}


def normal(mean: float, sd: float) -> Block:
    """θ ~ N(mean, sd²)."""
    return {"kind": "normal", "mean": float(mean), "sd": float(sd)}


def log_normal(log_mean: float, log_sd: float) -> Block:
    """ln θ ~ N(log_mean, log_sd²)."""
    return {"kind": "log-normal", "log_mean": float(log_mean), "log_sd": float(log_sd)}


def half_normal(sd: float) -> Block:
    """The magnitude of θ ~ N(0, sd²)."""
    return {"kind": "half-normal", "sd": float(sd)}


def truncated_normal(mean: float, sd: float, low: float | None = None, high: float | None = None) -> Block:
    """N(mean, sd²) cut off below ``low`` and above ``high``."""
    block: Block = {"kind": "truncated-normal", "mean": float(mean), "sd": float(sd)}
    return block | {name: float(end) for name, end in (("low", low), ("high", high)) if end is not None}


def student_t(df: float, location: float = 0.0, scale: float = 1.0) -> Block:
    """location + scale · t with ``df`` degrees of freedom."""
    return {"kind": "student-t", "df": float(df), "location": float(location), "scale": float(scale)}


def exponential(rate: float) -> Block:
    """Density ∝ exp(−rate · θ) on θ > 0."""
    return {"kind": "exponential", "rate": float(rate)}


def gamma(shape: float, scale: float) -> Block:
    """Density ∝ θ^(shape − 1) exp(−θ/scale) on θ > 0."""
    return {"kind": "gamma", "shape": float(shape), "scale": float(scale)}


def beta(alpha: float, beta: float) -> Block:
    """Density ∝ θ^(alpha − 1) (1 − θ)^(beta − 1) on 0 < θ < 1."""
    return {"kind": "beta", "alpha": float(alpha), "beta": float(beta)}


def integer_uniform(low: int, high: int) -> Block:
    """An integer, each from ``low`` to ``high`` as likely as any other."""
    return {"kind": "integer-uniform", "low": int(low), "high": int(high)}


def multivariate_normal(names: Sequence[str], mean: Any, covariance: Any) -> Block:
    """Several parameters together, θ ~ N(mean, covariance); a positional argument of :class:`Prior`."""
    return {
        "kind": "multivariate-normal",
        "names": list(names),
        "mean": to_floats(mean).tolist(),
        "covariance": to_floats(covariance).tolist(),
    }


def dirichlet(names: Sequence[str], concentration: Any) -> Block:
    """Several parameters that are positive and sum to one; a positional argument of :class:`Prior`."""
    return {"kind": "dirichlet", "names": list(names), "concentration": to_floats(concentration).tolist()}


def sample_table(file: str | os.PathLike[str], columns: str | None = None) -> Block:
    """A row of a table of samples, drawn with replacement; a positional argument of :class:`Prior`."""
    block: Block = {"kind": "table", "file": os.path.abspath(os.fspath(file))}
    return block if columns is None else block | {"columns": columns}


class Prior:
    """The prior of named parameters.

    Parameters that belong together are positional arguments, all others are keyword arguments::

        Prior(rate=log_uniform(0.01, 10), shift=normal(0, 2))
        Prior(multivariate_normal(["a", "b"], [0, 0], [[1, 0.5], [0.5, 1]]), noise=half_normal(1))
    """

    def __init__(self, *blocks: Block, **parameters: Block) -> None:
        listed: list[Block] = []
        for block in blocks:
            if not isinstance(block, Mapping) or "kind" not in block:
                raise SettingError("setting prior: positional arguments are joint distributions, such as multivariate_normal(…)")
            if not {"name", "names", "file"} & set(block):
                raise SettingError(f"setting prior: give the {block['kind']} distribution its parameter's name, as a keyword argument")
            listed.append(plain(block))
        for name, block in parameters.items():
            if not isinstance(block, Mapping) or "kind" not in block:
                raise SettingError(f"setting prior: {name} must be a distribution, such as uniform(0, 1), not {block!r}")
            if "names" in block or "file" in block:
                raise SettingError(f"setting prior: {name}: a {block['kind']} distribution names its own parameters; pass it without a name")
            listed.append({**plain(block), "name": name})
        self.blocks = listed
        self._core = _core.Prior(json.dumps(listed))

    @classmethod
    def of(cls, parameters: Mapping[str, Block]) -> "Prior":
        """A prior from a dictionary, for names that are no Python identifiers."""
        return cls(*({**block, "name": name} for name, block in parameters.items()))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Prior":
        """Reads a prior file (TOML)."""
        import tomllib

        _core.Prior.read(os.fspath(path))  # its messages name file and line
        with open(path, "rb") as file:
            blocks = tomllib.load(file)["prior"]
        folder = os.path.dirname(os.path.abspath(os.fspath(path)))
        for block in blocks:
            if block.get("kind") == "table":
                block["file"] = os.path.join(folder, block["file"])
        return cls(*blocks)

    @property
    def names(self) -> list[str]:
        """The parameters' names."""
        return self._core.names

    @property
    def supports(self) -> dict[str, str]:
        """The support of each parameter, as the setting ``support`` of a fit has it."""
        found = dict(zip(self.names, self._core.supports))
        for block in self.blocks:  # bounds as they were given: the logarithm and back may be off in the last digit
            if block["kind"] == "log-uniform":
                found[block["name"]] = f"log-interval({block['low']},{block['high']})"
        return found

    def sample(self, n: int, seed: int = 0) -> Floats:
        """``n`` draws, one row each: the parameters of the first n rows that ``simulate`` makes with this seed."""
        return self._core.rows(whole(seed, "seed"), 0, whole(n, "n"))[0]

    def log_prob(self, theta: Any) -> Floats:
        """log π(θ) of every row; −∞ outside the bounds."""
        values = to_floats(theta, "theta")
        rows = np.atleast_2d(values)
        density = self._core.log_density(np.ascontiguousarray(rows))[0]
        return density if values.ndim > 1 else density[0]

    def to_torch(self) -> Any:
        """The prior as a ``torch.distributions.Distribution``, for sbi."""
        from ._sbi import torch_prior

        return torch_prior(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(json.dumps(self.blocks, sort_keys=True))

    def __reduce__(self) -> Any:
        return (_rebuilt, (self.blocks,))

    def __repr__(self) -> str:
        def one(block: Block) -> str:
            of = ", ".join(f"{key}={value}" for key, value in block.items() if key not in ("kind", "name", "names"))
            name = block.get("name") or ", ".join(block.get("names", [])) or "table"
            return f"{name} ~ {block['kind']}({of})"

        return "Prior(" + "; ".join(one(block) for block in self.blocks) + ")"


def _rebuilt(blocks: list[Block]) -> Prior:
    return Prior(*blocks)
