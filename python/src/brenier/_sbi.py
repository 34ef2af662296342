"""A posterior as one of sbi's, and priors as torch distributions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ._data import Floats
from ._errors import SettingError, ShapeError

if TYPE_CHECKING:
    from ._posterior import Posterior
    from ._prior import Prior


def _support(bounds: list[tuple[float, float]]) -> Any:
    """A torch constraint for a row of parameters."""
    from torch.distributions import constraints

    def one(low: float, high: float) -> Any:
        if np.isfinite(low) and np.isfinite(high):
            return constraints.interval(low, high)
        if np.isfinite(low):
            return constraints.greater_than(low)
        return constraints.real

    each = constraints.cat([one(low, high) for low, high in bounds], dim=-1, lengths=[1] * len(bounds))
    return constraints.independent(each, 1)


def _bounds(support: str) -> tuple[float, float]:
    if support == "log":
        return 0.0, float("inf")
    if "(" in support:
        low, high = support[support.index("(") + 1 : -1].split(",")
        return float(low), float(high)
    return float("-inf"), float("inf")


def torch_prior(prior: "Prior") -> Any:
    """A torch distribution that draws and scores as the prior does; its draws follow torch's seed."""
    return _torch_prior_class()(prior)


@functools.cache
def _torch_prior_class() -> Any:
    """The class of all torch priors, made once: sbi's ensembles want members whose priors are of one class."""
    import torch

    class TorchPrior(torch.distributions.Distribution):
        arg_constraints: dict[str, Any] = {}
        has_rsample = False

        def __init__(self, prior: "Prior") -> None:
            super().__init__(event_shape=torch.Size([len(prior.names)]), validate_args=False)
            self._prior = prior
            rows = torch.as_tensor(prior.sample(4000, seed=0), dtype=torch.float32)
            self._mean, self._variance = rows.mean(0), rows.var(0)

        @property
        def mean(self) -> Any:
            return self._mean

        @property
        def variance(self) -> Any:
            return self._variance

        @property
        def support(self) -> Any:
            return _support([_bounds(text) for text in self._prior.supports.values()])

        def sample(self, sample_shape: Any = torch.Size()) -> Any:
            shape = torch.Size(sample_shape)
            seed = int(torch.randint(0, 2**62, (1,)).item())
            rows = torch.as_tensor(self._prior.sample(max(shape.numel(), 1), seed=seed), dtype=torch.float32)
            return rows.reshape(shape + self.event_shape)

        def log_prob(self, value: Any) -> Any:
            flat = value.detach().cpu().double().numpy().reshape(-1, len(self._prior.names))
            found = torch.as_tensor(self._prior.log_prob(flat), dtype=torch.float32)
            return found.reshape(value.shape[:-1])

        def __reduce__(self) -> Any:
            return torch_prior, (self._prior,)

    return TorchPrior


def box_prior(posterior: "Posterior") -> Any:
    """A uniform torch distribution on the supports of the target columns; unbounded ones are as wide as six deviations."""
    import torch

    low, high = [], []
    for column in posterior.header["target_transform"]["columns"]:
        ends = _bounds(column["support"])
        if np.isfinite(ends).all():
            low.append(ends[0])
            high.append(ends[1])
            continue
        centre, scale = float(column["centre"]), float(column["scale"])
        around = (centre - 6 * scale, centre + 6 * scale)
        if column["support"] == "log":
            around = (float(np.exp(around[0])), float(np.exp(around[1])))
        low.append(around[0])
        high.append(around[1])
    bounds = torch.tensor([low, high], dtype=torch.float32)
    return torch.distributions.Independent(torch.distributions.Uniform(bounds[0], bounds[1], validate_args=False), 1)


@functools.cache
def _posterior_class() -> Any:
    """The class of all posteriors handed over, made once: sbi's ensembles want members of one class."""
    import torch
    from sbi.inference.posteriors import DirectPosterior

    class BrenierPosterior(DirectPosterior):
        """Hands our draws and densities to sbi's tools."""

        #: The arguments of :func:`to_sbi`, to pickle it by.
        _made_of: Any

        def leakage_correction(self, *_: Any, **__: Any) -> Any:
            return torch.ones(1)

        def sample(self, *arguments: Any, **options: Any) -> Any:
            options.setdefault("reject_outside_prior", False)
            return super().sample(*arguments, **options)

        def sample_batched(self, *arguments: Any, **options: Any) -> Any:
            options.setdefault("reject_outside_prior", False)
            return super().sample_batched(*arguments, **options)

        def __reduce__(self) -> Any:
            return (to_sbi, self._made_of)

    return BrenierPosterior


def to_sbi(posterior: "Posterior", prior: Any = None) -> Any:
    """A :class:`DirectPosterior` whose draws and densities are ours.

    The leakage correction is 1: our densities are normalised on their supports, and sbi would otherwise draw ten thousand times
    at every new observation.
    """
    import torch
    from sbi.neural_nets.estimators import ConditionalDensityEstimator

    from ._prior import Prior

    n, m = len(posterior.target_names), len(posterior.given_names)

    def rows(tensor: Any, width: int) -> Floats:
        return np.ascontiguousarray(tensor.detach().cpu().double().numpy().reshape(-1, width))

    class LogProb(torch.autograd.Function):
        """log π(x | y) with our gradient in x."""

        @staticmethod
        def forward(ctx: Any, theta: Any, x: Any) -> Any:
            density, gradient = posterior._core.log_density_gradient(rows(theta, n), rows(x, m))
            ctx.save_for_backward(torch.as_tensor(np.nan_to_num(gradient), dtype=theta.dtype))
            return torch.as_tensor(density, dtype=theta.dtype)

        @staticmethod
        def backward(ctx: Any, outer: Any) -> Any:
            (gradient,) = ctx.saved_tensors
            return outer[:, None] * gradient, None

    class Estimator(ConditionalDensityEstimator):
        """Our posterior behind sbi's interface."""

        def __init__(self) -> None:
            super().__init__(torch.nn.Identity(), torch.Size([n]), torch.Size([m]))
            # A device is found by looking at a buffer.
            self.register_buffer("_place", torch.zeros(1))

        @property
        def embedding_net(self) -> Any:
            return torch.nn.Identity()

        def log_prob(self, input: Any, condition: Any, **_: Any) -> Any:
            sample, batch = input.shape[0], condition.shape[0]
            theta = input.reshape(sample, -1, n).expand(sample, batch, n)
            x = condition.reshape(1, batch, m).expand(sample, batch, m)
            return LogProb.apply(theta.reshape(-1, n), x.reshape(-1, m)).reshape(sample, batch)

        def loss(self, input: Any, condition: Any, **_: Any) -> Any:
            raise NotImplementedError("a posterior of brenier is trained: fit it again with brenier.fit")

        def sample(self, sample_shape: Any, condition: Any, **_: Any) -> Any:
            shape, batch = torch.Size(sample_shape), condition.shape[0]
            seed = int(torch.randint(0, 2**62, (1,)).item())
            drawn, *_rest = posterior._core.sample(rows(condition, m), batch, shape.numel(), seed, "{}")
            found = torch.as_tensor(drawn.reshape(batch, shape.numel(), n), dtype=torch.float32)
            return found.transpose(0, 1).reshape(*shape, batch, n)

    own_prior = prior
    if prior is None:
        prior = box_prior(posterior)
    elif isinstance(prior, Prior):
        prior = prior.to_torch()
    if not isinstance(prior, torch.distributions.Distribution):
        raise SettingError(f"setting prior: expected a torch distribution or br.Prior, got {type(prior).__name__}")
    if tuple(prior.event_shape) != (n,):
        raise ShapeError(f"prior: expected a distribution of {n} parameters ({', '.join(posterior.target_names[:20])}), got the event shape {tuple(prior.event_shape)}")
    handed = _posterior_class()(Estimator(), prior)
    handed._made_of = (posterior, own_prior)
    return handed
