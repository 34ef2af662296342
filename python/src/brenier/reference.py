"""Evaluates model files with NumPy alone: an independent reading of docs/model-file.md and docs/methods.md.

This file needs nothing else of the package and can be copied beside a paper::

    model = read("model.brenier")
    model.log_prob(x, y)            # as Posterior.log_prob, rows of x and y
    model.gradient(x, y)            # of log π(x | y) in x, by complex steps
    model.sample(y, n, seed=0)      # n draws at one row y, from NumPy's generator

Derivatives that the densities need are carried forwards as second-order Taylor coefficients (:class:`Jet`); the gradient of a
log density is a complex step, exact to rounding. With ``read(path, jax.numpy)`` everything runs under JAX (switch on double
precision), where ``jax.grad`` takes the place of :meth:`Model.gradient`.

A method is one class in :data:`METHODS`: ``forward`` gives z and log det ∂z/∂x of rows, ``inverse`` gives x of z; ``tail``, where
it is there and not None, are share and degrees of freedom of the heavy tail of z. Written for clarity, not for speed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
from statistics import NormalDist
from typing import Any

import numpy as np

Array = Any
_STEP = 1e-30


def tensors_of(path: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header document and the tensors of a model file, in double precision."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    meta = header.pop("__metadata__")
    if meta.get("format") != "brenier" or int(meta["format_version"]) > 2:
        raise ValueError(f"{path}: not a model file that this evaluator reads")
    if meta["data_sha256"] != hashlib.sha256(data).hexdigest():
        raise ValueError(f"{path}: the data are damaged")
    types = {"F32": "<f4", "F64": "<f8", "U64": "<u8"}
    return json.loads(meta["brenier"]), {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"]).astype(float)
        for name, entry in header.items()
    }


# Activations: f, f′ and f″. Branches look at the real part, so that complex steps pass through them.


def _softplus(s: Array, xp: Any) -> tuple[Array, Array, Array]:
    positive = s.real > 0
    decay = xp.exp(xp.where(positive, -s, s))
    slope = xp.where(positive, 1.0, decay) / (1.0 + decay)
    return xp.where(positive, s, 0.0) + xp.log1p(decay), slope, slope * (1.0 - slope)


def _log_two_cosh(s: Array, xp: Any) -> tuple[Array, Array, Array]:
    size, slope = xp.where(s.real > 0, s, -s), xp.tanh(s)
    return size + xp.log1p(xp.exp(-2.0 * size)), slope, 1.0 - slope * slope


def _elu(s: Array, xp: Any) -> Array:
    return xp.where(s > 0, s, xp.expm1(xp.minimum(s, 0.0)))


def _relu(s: Array, xp: Any) -> Array:
    return xp.where(s.real > 0, s, 0.0)


def _normal_below(u: Array, xp: Any) -> Array:
    """Φ(u) of real numbers."""
    if xp is np:  # which has no error function
        return 0.5 * np.vectorize(math.erfc, otypes=[float])(-u / math.sqrt(2.0))
    from jax.scipy.special import ndtr

    return ndtr(u)


def _normal_quantile(below: Array, above: Array, xp: Any) -> Array:
    """u with Φ(u) = below/(below + above), from the smaller of both parts."""
    if xp is not np:
        from jax.scipy.special import ndtri

        low = below < above
        u = ndtri(xp.where(low, below, above) / (below + above))
        return xp.where(low, u, -u)
    quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])
    part = below / (below + above)
    u = quantile(np.minimum(below.real, above.real) / (below + above).real)
    u = np.where(below.real < above.real, u, -u)
    # The imaginary part of a complex step is a derivative.
    return u + 1j * part.imag * np.exp(0.5 * u * u) * math.sqrt(2.0 * math.pi) if np.iscomplexobj(part) else u


# The straight link: (0, 1) to the line, straight inside, with Gaussian tails in the last tenth before each end.
_BENT = 0.2
_SLOPE = 2.0 * _BENT / math.sqrt(2.0 * math.pi)
_BEND = (1.0 - _BENT) / _SLOPE


def _straight(below: Array, above: Array, xp: Any) -> tuple[Array, Array]:
    """u of the point that divides its interval into these parts, and log du/dp, p the part below."""
    low = below.real < above.real
    tail = xp.where(low, below, above) / (below + above)
    inside = (1.0 - 2.0 * tail) / _SLOPE
    part = xp.where(tail.real < 0.5 * _BENT, tail / _BENT, 0.5)
    past = -_normal_quantile(part, 1.0 - part, xp)
    size = xp.where(tail.real < 0.5 * _BENT, _BEND + past, inside)
    return xp.where(low, -size, size), 0.5 * past * past - math.log(0.5 * _SLOPE)


def _straight_below(u: Array, xp: Any) -> Array:
    """The part below u, of real numbers."""
    size = xp.abs(u)
    past = xp.where(size > _BEND, size - _BEND, 0.0)
    tail = xp.where(size > _BEND, _BENT * _normal_below(-past, xp), 0.5 - 0.5 * _SLOPE * size)
    return xp.where(u < 0, tail, 1.0 - tail)


def _gaussian_softplus(s: Array, xp: Any) -> tuple[Array, Array, Array]:
    """ψ(s) = sΦ(s) + φ(s) − φ(0)."""
    density = xp.exp(-0.5 * s * s) / math.sqrt(2.0 * math.pi)
    if xp is np:  # which has no error function; the imaginary part of a complex step is a derivative
        below = _normal_below(s.real, np)
        below = below + 1j * density.real * s.imag if np.iscomplexobj(s) else below
    else:
        from jax.scipy.special import erfc

        below = 0.5 * erfc(-s / math.sqrt(2.0))
    return s * below + density - 1.0 / math.sqrt(2.0 * math.pi), below, density


def _between(x: Array, low: Any, high: Any, xp: Any) -> Array:
    """x, or the bound that it lies beyond."""
    return xp.where(x.real < low, low, xp.where(x.real > high, high, x))


class Jet:
    """Features of rows with gradients and Hessians in d variables: shapes (rows, f), (rows, f, d), (rows, f, d, d)."""

    def __init__(self, value: Array, gradient: Array, hessian: Array, xp: Any) -> None:
        self.value, self.gradient, self.hessian, self.xp = value, gradient, hessian, xp

    @classmethod
    def variables(cls, values: Array, xp: Any) -> "Jet":
        """The variables themselves."""
        rows, d = values.shape
        return cls(values, xp.broadcast_to(xp.eye(d), (rows, d, d)), xp.zeros((rows, d, d, d)), xp)

    def __add__(self, other: "Jet") -> "Jet":
        return Jet(self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian, self.xp)

    def mix(self, weights: Array) -> "Jet":
        """weights · features, the same weights for every row or some for each."""
        names = "of,rf...->ro..." if len(weights.shape) == 2 else "rof,rf...->ro..."
        one = lambda part: self.xp.einsum(names, weights, part)  # noqa: E731
        return Jet(one(self.value), one(self.gradient), one(self.hessian), self.xp)

    def scale(self, factors: Array) -> "Jet":
        """features times what does not depend on the variables."""
        return Jet(self.value * factors, self.gradient * factors[..., None], self.hessian * factors[..., None, None], self.xp)

    def shift(self, constants: Array) -> "Jet":
        """features plus what does not depend on the variables."""
        return Jet(self.value + constants, self.gradient, self.hessian, self.xp)

    def apply(self, activation: Any) -> "Jet":
        """f(s): gradient f′∇s, Hessian f′∇²s + f″∇s∇sᵀ."""
        f, slope, curvature = activation(self.value, self.xp)
        outer = self.gradient[..., :, None] * self.gradient[..., None, :]
        hessian = slope[..., None, None] * self.hessian + curvature[..., None, None] * outer
        return Jet(f, slope[..., None] * self.gradient, hessian, self.xp)

    def half_square(self) -> "Jet":
        """½‖features‖² as one feature."""
        square = self.apply(lambda s, xp: (0.5 * s * s, s, xp.ones_like(s)))
        return square.mix(self.xp.ones((1, self.value.shape[1])))


def _log_det(matrices: Array, xp: Any) -> Array:
    """Of symmetric positive definite matrices, by elimination; analytic in their entries."""
    rest, total = matrices, 0.0
    while rest.shape[1] > 0:
        pivot, column = rest[:, 0, 0], rest[:, 1:, 0]
        total = total + xp.log(pivot)
        rest = rest[:, 1:, 1:] - column[:, :, None] * column[:, None, :] / pivot[:, None, None]
    return total


def _solve_gradient(potential: Any, z: Array, xp: Any) -> Array:
    """x with ∇G(x) = z by damped Newton: it minimises the strongly convex G − zᵀx. Not for JAX's transformations."""
    x = xp.zeros_like(z)
    for _ in range(500):
        g = potential(x)
        residual = g.gradient[:, 0] - z
        if float(xp.abs(residual).max()) < 1e-12:
            break
        step = xp.linalg.solve(g.hessian[:, 0], residual[:, :, None])[:, :, 0]
        value, slope = g.value[:, 0] - (z * x).sum(axis=1), (residual * step).sum(axis=1)
        length = xp.ones(len(x))
        for _ in range(60):
            moved = potential(x - length[:, None] * step).value[:, 0] - (z * (x - length[:, None] * step)).sum(axis=1)
            rising = moved > value - 1e-4 * length * slope + 1e-14 * (1.0 + xp.abs(value))
            if not bool(rising.any()):
                break
            length = xp.where(rising, 0.5 * length, length)
        x = x - length[:, None] * step
    return x


def _reference_log_density(z: Array, tail: tuple[float, float] | None, xp: Any) -> Array:
    """Of rows z: the standard Gaussian's or, with a tail (ε, ν), log((1 − ε) N(0, I) + ε t_ν), t_ν the isotropic Student's t."""
    n, square = z.shape[1], (z * z).sum(axis=1)
    gaussian = -0.5 * square - 0.5 * n * math.log(2.0 * math.pi)
    if tail is None:
        return gaussian
    share, degrees = tail
    constant = math.lgamma(0.5 * (degrees + n)) - math.lgamma(0.5 * degrees) - 0.5 * n * math.log(degrees * math.pi)
    student = constant - 0.5 * (degrees + n) * xp.log1p(square / degrees)
    return student + xp.log(share + (1.0 - share) * xp.exp(gaussian - student))


class PcpMap:
    """z = ∇ₓG with G a network that is convex in x."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.depth = p, xp, int(settings["depth"])
        self.softplus_output = settings.get("output_activation") == "softplus"
        self.front = "Lf.0" in p
        self.gated = "Lv.0" in p or self.depth == 0 and "Lvw.0" in p
        self.tail = None
        if "tail_logit" in p:
            self.tail = 1.0 / (1.0 + math.exp(-float(p["tail_logit"][0]))), 1.0 + math.exp(float(p["log_degrees"][0]))

    def _affine(self, variables: Jet, y: Array) -> Jet:
        """u = L(y)(x − μ(y)), L lower triangular, its columns stored from the diagonal down."""
        p, xp, n, v = self.p, self.xp, variables.value.shape[1], y
        for k in range(self.depth):
            v = _elu(v @ p[f"Lv.{k}"].T + p[f"bv.{k}"], xp)
        values = y @ p["Lf.0"].T + p["bf.0"] + v @ p[f"Lf.{self.depth}"].T + p[f"bf.{self.depth}"]
        columns, place = [], n
        for j in range(n):
            diagonal = xp.exp(8.0 * xp.tanh(values[:, place : place + 1] / 8.0))
            below = values[:, place + 1 : place + n - j]
            columns.append(xp.concatenate([xp.zeros((len(y), j)), diagonal, below], axis=1))
            place += n - j
        return variables.shift(-values[:, :n]).mix(xp.stack(columns, axis=2))

    def _potential(self, x: Array, y: Array) -> Jet:
        p, xp = self.p, self.xp
        variables = Jet.variables(x, xp)
        if self.front:
            variables = self._affine(variables, y)
        w, v = variables, y
        relu = lambda s: xp.maximum(s, 0.0)  # noqa: E731
        for k in range(self.depth + 1):
            if self.gated:
                gate = relu(v @ p[f"Lwv.{k}"].T + p[f"bwv.{k}"])
                s = w.scale(gate).mix(p[f"Lw.{k}"]).shift(v @ p[f"Lvw.{k}"].T + p[f"bw.{k}"])
                if k > 0:
                    s = s + variables.scale(v @ p[f"Lxv.{k}"].T + p[f"bxv.{k}"]).mix(p[f"Lx.{k}"])
            else:  # fully convex: all gates are open, and the first layer is linear in x
                s = variables.mix(p[f"Lx.{k}"]).shift(p[f"bw.{k}"])
                if k > 0:
                    weights = p[f"Lw.{k}"]
                    missing = p[f"Lx.{k}"].shape[0] - weights.shape[0]
                    s = s + w.mix(xp.concatenate([weights, xp.zeros((missing, weights.shape[1]))]))
            if k < self.depth:
                w = s.apply(_softplus)
                v = _elu(v @ p[f"Lv.{k}"].T + p[f"bv.{k}"], xp) if self.gated else v
        network = s.apply(_softplus) if self.softplus_output else s
        smooth, gamma = _softplus(p["gamma"], xp)[0], p["gamma"]
        ones = xp.ones((x.shape[0], 1))
        return network.scale(smooth[0] * ones) + variables.half_square().scale((relu(gamma[1]) + smooth[2]) * ones)

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        potential = self._potential(x, y)
        return potential.gradient[:, 0], _log_det(potential.hessian[:, 0], self.xp)

    def inverse(self, z: Array, y: Array) -> Array:
        """x of z."""
        return _solve_gradient(lambda x: self._potential(x, y), z, self.xp)


def _bent(s: Array, xp: Any) -> Array:
    """ELU, also of complex numbers."""
    return xp.where(s.real > 0, s, xp.exp(xp.where(s.real > 0, 0.0, s)) - 1.0)


def _embedded(p: dict[str, Array], y: Array, layers: int, xp: Any, activation: str = "tanh") -> Array:
    """Layers that end in the activation, the last of them linear; y itself without any."""
    bend = {
        "tanh": xp.tanh,
        "relu": lambda s: _relu(s, xp),
        "elu": lambda s: _bent(s, xp),
    }[activation]
    for layer in range(1, layers + 1):
        y = y @ p[f"E{layer}"].T + p[f"d{layer}"]
        y = bend(y) if layer < layers else y
    return y


class CotFlow:
    """z = x(1) of dx/dt = −∇ₓΦ(t, x; y), x(0) = x, by classical Runge–Kutta steps."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.n = p, xp, n
        self.depth, self.steps = int(settings["depth"]), int(settings["evaluation_steps"])
        self.layers = len(settings.get("embedding") or [])

    def _rates(self, t: float, state: Array, e: Array) -> Array:
        """Time derivatives of (x, log det), as columns."""
        p, xp, n = self.p, self.xp, self.n
        q = Jet.variables(xp.concatenate([xp.full((state.shape[0], 1), t), state[:, :n], e], axis=1), xp)
        u = q.mix(p["A0"]).shift(p["b0"]).apply(_log_two_cosh)
        for i in range(1, self.depth):
            u = u + _times(u.mix(p[f"A{i}"]).shift(p[f"b{i}"]).apply(_log_two_cosh), 1.0 / (self.depth - 1))
        phi = u.mix(p["a"][None]) + q.mix(p["A"].T).half_square() + q.mix(p["b"][None])
        laplacian = xp.einsum("rii->r", phi.hessian[:, 0, 1 : 1 + n, 1 : 1 + n])
        return -xp.concatenate([phi.gradient[:, 0, 1 : 1 + n], laplacian[:, None]], axis=1)

    def _integrate(self, state: Array, e: Array, start: float, h: float) -> Array:
        for i in range(self.steps):
            t = start + i * h
            k1 = self._rates(t, state, e)
            k2 = self._rates(t + 0.5 * h, state + 0.5 * h * k1, e)
            k3 = self._rates(t + 0.5 * h, state + 0.5 * h * k2, e)
            k4 = self._rates(t + h, state + h * k3, e)
            state = state + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return state

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        state = self.xp.concatenate([x, self.xp.zeros((x.shape[0], 1))], axis=1)
        state = self._integrate(state, _embedded(self.p, y, self.layers, self.xp), 0.0, 1.0 / self.steps)
        return state[:, : self.n], state[:, self.n]

    def inverse(self, z: Array, y: Array) -> Array:
        """x(0) from x(1) = z, in as many steps."""
        state = self.xp.concatenate([z, self.xp.zeros((z.shape[0], 1))], axis=1)
        return self._integrate(state, _embedded(self.p, y, self.layers, self.xp), 1.0, -1.0 / self.steps)[:, : self.n]


def _swish(s: Array, ds: Array, xp: Any) -> tuple[Array, Array]:
    """σ(s) = s/(1 + e⁻ˢ) of features, shape (rows, f), and its derivatives from theirs, shape (rows, f, n)."""
    gate = _softplus(s, xp)[1]
    return s * gate, (gate + s * gate * (1.0 - gate))[..., None] * ds


class FlowMatching:
    """z = x(1) of dx/dt = v(t, x; y), x(0) = x, by classical Runge–Kutta steps between the times (k/N)²."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.n = p, xp, n
        self.blocks, self.times = int(settings["blocks"]), np.linspace(0.0, 1.0, int(settings["evaluation_steps"]) + 1) ** 2
        self.layers = len(settings.get("embedding") or []) if m > 0 else 0

    def _rates(self, t: float, state: Array, e: Array) -> Array:
        """Time derivatives of (x, log det), as columns: v and its divergence."""
        p, xp = self.p, self.xp
        angles = [0.5 * math.pi * t * 2**k for k in range(4)]
        waves = xp.asarray([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
        own = xp.split(e @ p["C"].T + p["T"] @ waves + p["c"], self.blocks + 1, axis=1)
        h, dh = state[:, : self.n] @ p["W"].T + own[0], p["W"][None]
        for i in range(1, self.blocks + 1):
            u, du = _swish(h, dh, xp)
            u, du = _swish(u @ p[f"A{i}"].T + own[i], p[f"A{i}"] @ du, xp)
            h, dh = h + u @ p[f"B{i}"].T + p[f"b{i}"], dh + p[f"B{i}"] @ du
        u, du = _swish(h, dh, xp)
        divergence = xp.einsum("jf,rfj->r", p["V"], du)
        return xp.concatenate([u @ p["V"].T + p["d"], divergence[:, None]], axis=1)

    def _integrate(self, x: Array, y: Array, times: Array) -> Array:
        e, state = _embedded(self.p, y, self.layers, self.xp), self.xp.concatenate([x, self.xp.zeros((x.shape[0], 1))], axis=1)
        for start, end in zip(times[:-1], times[1:]):
            h, middle = end - start, 0.5 * (start + end)
            k1 = self._rates(start, state, e)
            k2 = self._rates(middle, state + 0.5 * h * k1, e)
            k3 = self._rates(middle, state + 0.5 * h * k2, e)
            k4 = self._rates(end, state + h * k3, e)
            state = state + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return state

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        state = self._integrate(x, y, self.times)
        return state[:, : self.n], state[:, self.n]

    def inverse(self, z: Array, y: Array) -> Array:
        """x(0) from x(1) = z, the same times in reverse."""
        return self._integrate(z, y, self.times[::-1])[:, : self.n]


def _times(jet: Jet, factor: float) -> Jet:
    """A jet times a number."""
    return Jet(factor * jet.value, factor * jet.gradient, factor * jet.hessian, jet.xp)


class Gaussian:
    """z = V diag(e^{−s(y)}) Vᵀ (x − μ(y)), μ = A y + b, s = c + C y."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp = p, xp
        self.volume = 2.0 * math.log(abs(np.linalg.det(np.asarray(p["V"]))))

    def _moments(self, y: Array) -> tuple[Array, Array]:
        p = self.p
        mean = y @ p["A"].T + p["b"]
        spread = p["c"] + (y @ p["C"].T if "C" in p else self.xp.zeros_like(mean))
        return mean, spread

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        mean, spread = self._moments(y)
        z = (((x - mean) @ self.p["V"]) * self.xp.exp(-spread)) @ self.p["V"].T
        return z, self.volume - spread.sum(axis=1)

    def inverse(self, z: Array, y: Array) -> Array:
        """x of z."""
        mean, spread = self._moments(y)
        inverse = self.xp.linalg.inv(self.p["V"])
        return mean + ((z @ inverse.T) * self.xp.exp(spread)) @ inverse


class CpFlow:
    """z = N_L(∇F_L(… N_1(∇F_1(N_0(x))))): gradients of networks F_l that are convex in x between normalisations N_l."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp = p, xp
        self.depth, self.blocks = int(settings["depth"]), int(settings["blocks"])

    def _norm(self, name: str) -> tuple[Array, Array]:
        """Shift and factor of the normalisation at ``name``, as in ``outer.?.0``."""
        return self.p[name.replace("?", "shift")], self.xp.exp(self.p[name.replace("?", "scale")]) + 0.001

    def _potential(self, block: int, x: Array, y: Array) -> Jet:
        xp, head, last = self.xp, "" if self.blocks == 1 else f"block{block}.", self.depth
        p = {name[len(head) :]: values for name, values in self.p.items() if name.startswith(head)}
        positive = lambda s: _softplus(s, xp)[0]  # noqa: E731

        def normal(jet: Jet, place: Any) -> Jet:
            shift, factor = self._norm(f"{head}?.{place}")
            return jet.shift(shift).scale(xp.broadcast_to(factor, jet.value.shape))

        shift, factor = self._norm(f"{head}?.c")
        c = _elu((y @ p["B"].T + p["b"] + shift) * factor, xp)
        variables = Jet.variables(x, xp)
        s = normal(variables.mix(p["X.0"]).shift(p["bX.0"]), 0)
        w = s.apply(_gaussian_softplus) + _times(s, -0.5)
        width = p["b"].shape[0]
        for k in range(1, last + 1):
            start = math.exp(-1.0) if k < last else math.log(math.e - 1.0)
            gate = positive(c @ p[f"Wz.{k}"].T + p[f"bz.{k}"] + start)
            s = w.scale(gate).mix(positive(p[f"P.{k}"]) / width)
            s = s + variables.scale(c @ p[f"Wx.{k}"].T + p[f"bx.{k}"] + 1.0).mix(p[f"X.{k}"])
            if k < last:
                s = s.shift(p[f"bP.{k}"] / width + p[f"bX.{k}"] + c @ p[f"Wc.{k}"].T + p[f"bc.{k}"])
                w = normal(s, k).apply(_gaussian_softplus)
        a, b = positive(p["w"][1]), positive(p["w"][0])
        return _times(normal(s, last), a) + _times(variables.half_square(), b)

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        shift, factor = self._norm("outer.?.0")
        x, log_det = (x + shift) * factor, self.xp.log(factor).sum()
        for block in range(1, self.blocks + 1):
            potential = self._potential(block, x, y)
            shift, factor = self._norm(f"outer.?.{block}")
            log_det = log_det + _log_det(potential.hessian[:, 0], self.xp) + self.xp.log(factor).sum()
            x = (potential.gradient[:, 0] + shift) * factor
        return x, log_det

    def inverse(self, z: Array, y: Array) -> Array:
        """x of z."""
        for block in range(self.blocks, 0, -1):
            shift, factor = self._norm(f"outer.?.{block}")
            z = _solve_gradient(lambda x: self._potential(block, x, y), z / factor - shift, self.xp)  # noqa: B023
        shift, factor = self._norm("outer.?.0")
        return z / factor - shift


_LEAST = 1e-3


class Npe:
    """Normalising flows whose transforms read y: spline couplings (nsf), or masked affine transforms (maf)."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.n, self.kind = p, xp, n, settings["flow"]
        self.transforms, self.width, self.blocks = (int(settings[key]) for key in ("transforms", "hidden_width", "blocks"))
        self.bins, self.bound = int(settings["bins"]), float(settings["tail_bound"])
        self.layers, self.activation = len(settings.get("embedding") or []), settings.get("embedding_activation", "tanh")
        self.front = settings.get("front", "none") if m > 0 else "none"
        self.orders = _permutations(int(settings["permutation_seed"]), n, self.transforms) if self.kind == "maf" else []
        degrees, inputs = np.sort(np.arange(self.width) % max(n - 1, 1) + min(n - 1, 1)), np.arange(1, n + 1)
        hidden = [degrees[:, None] >= degrees] * self.blocks
        self.masks = [degrees[:, None] >= inputs, *hidden, np.tile(inputs, 2)[:, None] > degrees]

    def _affine(self, t: int, x: Array, y: Array) -> tuple[Array, Array]:
        """Scales and shifts of masked transform t: of coordinate i, from those before it."""
        p, xp = self.p, self.xp
        layer = lambda k, v: v @ (p[f"W{k}.{t}"] * xp.asarray(self.masks[k])).T + p[f"b{k}.{t}"]  # noqa: E731
        hidden = xp.tanh(layer(0, x) + xp.tanh(y @ p[f"C0.{t}"].T + p[f"c0.{t}"]))
        for k in range(1, self.blocks + 1):
            hidden = xp.tanh(layer(k, hidden))
        outputs = layer(self.blocks + 1, hidden)
        return _softplus(outputs[:, : self.n], xp)[0] + _LEAST, outputs[:, self.n :]

    def _front(self, y: Array) -> tuple[Array, Array, dict[tuple[int, int], Array]]:
        """μ, ℓ and the entries N_ij, j < i, of the affine front u = (I + N) exp(ℓ) (x − μ)."""
        n, columns = self.n, y @ self.p["Cf"].T + self.p["cf"]
        places = {(i, j): 2 * n + i * (i - 1) // 2 + j for i in range(n) for j in range(i)}
        log = 8.0 * self.xp.tanh(columns[:, n : 2 * n] / 8.0)
        return columns[:, :n], log, {place: columns[:, at] for place, at in places.items()}

    def _head(self, k: int, r: Array, y: Array) -> tuple[Array, Array]:
        """μ and ℓ of coordinate k of an autoregressive front, from y and the coordinates before it, the first k columns of r."""
        p, xp, width = self.p, self.xp, len(self.p["fa.0"])
        layer = lambda name, v: v @ p[f"F{name}.{k}"].T + p[f"f{name}.{k}"]  # noqa: E731
        opened = xp.tanh(layer("a", r[:, :k]) if k else xp.zeros_like(y[:, :1]) + p["fa.0"])
        gates, own = layer("g", opened), slice(k * width, (k + 1) * width)
        hidden = _bent(gates[:, :width] * (y @ p["Cf"][own].T + p["cf"][own]) + gates[:, width:], xp)
        out = layer("o", hidden + _bent(layer("h", hidden), xp))
        return out[:, 0], 8.0 * xp.tanh(out[:, 1] / 8.0)

    def _mix(self, mix: dict[tuple[int, int], Array], w: Array) -> Array:
        """(I + N) w."""
        return self.xp.stack([w[:, i] + sum(mix[i, j] * w[:, j] for j in range(i)) for i in range(self.n)], axis=1)

    def _splines(self, t: int, x: Array, y: Array) -> dict[int, Array]:
        """The numbers of the splines of transform t, by the coordinates that they bend; they read the other coordinates."""
        p, xp = self.p, self.xp
        layer = lambda k, v: v @ p[f"W{k}.{t}"].T + p[f"b{k}.{t}"]  # noqa: E731
        hidden = y @ p[f"C0.{t}"].T + p[f"c0.{t}"]
        if self.n == 1:
            hidden = _relu(hidden, xp)
            for k in range(1, self.blocks):
                hidden = _relu(layer(k, hidden), xp)
        else:
            hidden = hidden + x[:, 1 - t % 2 :: 2] @ p[f"W0.{t}"].T
            for k in range(1, self.blocks + 1):
                inner = layer(2 * k, _relu(layer(2 * k - 1, _relu(hidden, xp)), xp))
                hidden = hidden + inner * _softplus(y @ p[f"C{k}.{t}"].T + p[f"c{k}.{t}"], xp)[1]
        raw, each = hidden @ p[f"P.{t}"].T + p[f"p.{t}"], 3 * self.bins - 1
        moved = [0] if self.n == 1 else range(t % 2, self.n, 2)
        return {column: raw[:, place * each : (place + 1) * each] for place, column in enumerate(moved)}

    def _bin(self, raw: Array, u: Array, backwards: bool) -> tuple[Array, ...]:
        """Of the bin of every row: left knot (X, Y), width, height, slopes at both ends."""
        xp, bins, bound = self.xp, self.bins, self.bound

        def knots(logits: Array) -> Array:
            parts = xp.exp((logits - logits.real.max(axis=1, keepdims=True)) / math.sqrt(self.width))
            sizes = 2.0 * bound * (_LEAST + (1.0 - _LEAST * bins) * parts / parts.sum(axis=1, keepdims=True))
            return xp.concatenate([xp.full((len(u), 1), -bound), -bound + xp.cumsum(sizes, axis=1)], axis=1)

        xs, ys, ones = knots(raw[:, :bins]), knots(raw[:, bins : 2 * bins]), xp.ones((len(u), 1))
        slopes = xp.concatenate([ones, _softplus(raw[:, 2 * bins :], xp)[0] + _LEAST, ones], axis=1)
        place = ((ys if backwards else xs)[:, 1:-1].real <= u.real[:, None]).sum(axis=1)[:, None]
        at = lambda values, k: xp.take_along_axis(values, k, axis=1)[:, 0]  # noqa: E731
        x0, y0 = at(xs, place), at(ys, place)
        return x0, y0, at(xs, place + 1) - x0, at(ys, place + 1) - y0, at(slopes, place), at(slopes, place + 1)

    def _bend(self, raw: Array, u: Array) -> tuple[Array, Array]:
        """A spline's value and log slope; outside its interval it is the identity."""
        xp = self.xp
        outside = xp.abs(u.real) > self.bound
        x0, y0, w, h, low, high = self._bin(raw, xp.where(outside, 0.0, u), False)
        theta, secant = (xp.where(outside, 0.0, u) - x0) / w, h / w
        q = theta * (1.0 - theta)
        d = secant + (low + high - 2.0 * secant) * q
        steep = secant**2 * (high * theta**2 + 2.0 * secant * q + low * (1.0 - theta) ** 2)
        value = y0 + h * (secant * theta**2 + low * q) / d
        return xp.where(outside, u, value), xp.where(outside, 0.0, xp.log(steep) - 2.0 * xp.log(d))

    def _unbend(self, raw: Array, v: Array) -> Array:
        """u of a spline's value: the root of a quadratic, and two Newton steps against rounding."""
        xp = self.xp
        outside = xp.abs(v) > self.bound
        x0, y0, w, h, low, high = self._bin(raw, xp.where(outside, 0.0, v), True)
        rise, secant = xp.where(outside, 0.0, v) - y0, h / w
        bend = low + high - 2.0 * secant
        a, b, c = h * (secant - low) + rise * bend, h * low - rise * bend, -secant * rise
        theta = 2.0 * c / (-b - xp.sqrt(xp.maximum(b * b - 4.0 * a * c, 0.0)))
        u = x0 + theta * w
        for _ in range(2):
            value, log_slope = self._bend(raw, u)
            u = _between(u - (value - xp.where(outside, value, v)) * xp.exp(-log_slope), x0, x0 + w, xp)
        return xp.where(outside, v, u)

    def _linear(self, t: int) -> tuple[Array, Array]:
        """L U and log det of the linear layer; entries off the diagonals stand column by column."""
        p, xp, n = self.p, self.xp, self.n
        diagonal = _softplus(p[f"d.{t}"], xp)[0] + _LEAST
        below, above = ({place: k for k, place in enumerate(own)} for own in (
            [(i, j) for j in range(n) for i in range(j + 1, n)], [(i, j) for j in range(n) for i in range(j)]))
        zero, one = xp.zeros(()), xp.ones(())
        lower = [[p[f"L.{t}"][below[i, j]] if i > j else one if i == j else zero for j in range(n)] for i in range(n)]
        upper = [[p[f"U.{t}"][above[i, j]] if i < j else diagonal[i] if i == j else zero for j in range(n)] for i in range(n)]
        matrix = lambda rows: xp.stack([xp.stack(row) for row in rows])  # noqa: E731
        return matrix(lower) @ matrix(upper), xp.log(diagonal).sum()

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        xp, log_det = self.xp, 0.0
        y = _embedded(self.p, y, self.layers, xp, self.activation)
        if self.front == "autoregressive":
            r = x @ self.p["Q"].T
            heads = [self._head(k, r, y) for k in range(self.n)]
            x = xp.stack([(r[:, k] - mean) * xp.exp(log) for k, (mean, log) in enumerate(heads)], axis=1)
            log_det = sum(log for _, log in heads)
        elif self.front == "affine":
            mean, log, mix = self._front(y)
            x, log_det = self._mix(mix, (x - mean) * xp.exp(log)), log.sum(axis=1)
        for t in range(self.transforms):
            if self.kind == "maf":
                scale, shift = self._affine(t, x, y)
                x, log_det = (scale * x + shift)[:, np.array(self.orders[t])], log_det + xp.log(scale).sum(axis=1)
                continue
            columns = [x[:, j] for j in range(self.n)]
            for column, raw in self._splines(t, x, y).items():
                columns[column], own = self._bend(raw, columns[column])
                log_det = log_det + own
            x = xp.stack(columns, axis=1)
            if self.n > 1:
                matrix, own = self._linear(t)
                x, log_det = x @ matrix.T + self.p[f"e.{t}"], log_det + own
        return x, log_det

    def inverse(self, z: Array, y: Array) -> Array:
        """x of z, transform by transform; a masked one coordinate by coordinate."""
        xp = self.xp
        y = _embedded(self.p, y, self.layers, xp, self.activation)
        for t in reversed(range(self.transforms)):
            if self.kind == "maf":
                v = z[:, np.argsort(np.array(self.orders[t]))]
                z = xp.zeros_like(v)
                for _ in range(self.n):  # each pass settles one coordinate more
                    scale, shift = self._affine(t, z, y)
                    z = (v - shift) / scale
                continue
            if self.n > 1:
                z = xp.linalg.solve(self._linear(t)[0], (z - self.p[f"e.{t}"]).T).T
            columns = [z[:, j] for j in range(self.n)]
            for column, raw in self._splines(t, z, y).items():
                columns[column] = self._unbend(raw, columns[column])
            z = xp.stack(columns, axis=1)
        if self.front == "autoregressive":
            r = z[:, :0]
            for k in range(self.n):
                mean, log = self._head(k, r, y)
                r = xp.concatenate([r, (z[:, k] * xp.exp(-log) + mean)[:, None]], axis=1)
            z = r @ self.p["Q"]
        elif self.front == "affine":
            mean, log, mix = self._front(y)
            known: list[Array] = []
            for i in range(self.n):
                known.append(z[:, i] - sum(mix[i, j] * known[j] for j in range(i)))
            z = xp.stack(known, axis=1) * xp.exp(-log) + mean
        return z


def _permutations(seed: int, n: int, count: int) -> list[list[int]]:
    """Random orders of n coordinates, none of them the identity: Fisher–Yates with the words of ChaCha8 (docs/model-file.md)."""
    mask, state, key = 0xFFFFFFFF, seed, []
    for _ in range(8):  # the key, by PCG32
        state = (state * 6364136223846793005 + 11634580027462260723) % 2**64
        word, turn = ((state >> 18 ^ state) >> 27) & mask, state >> 59
        key.append((word >> turn | word << (32 - turn)) & mask)

    def words() -> Any:
        block = 0
        while True:
            start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, block & mask, block >> 32, 0, 0]
            v = start[:]
            for turn in range(8):
                for i in range(4):  # columns, then diagonals
                    a, b, c, d = ((i + shift * (turn % 2)) % 4 + 4 * shift for shift in range(4))
                    for one, other, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                        v[one] = (v[one] + v[other]) & mask
                        mixed = v[third] ^ v[one]
                        v[third] = (mixed << bits | mixed >> (32 - bits)) & mask
            yield from ((one + other) & mask for one, other in zip(v, start))
            block += 1

    source = words()

    def below(bound: int) -> int:
        product = next(source) * bound
        carry = (product & mask) > 2**32 - bound and (product & mask) + (next(source) * bound >> 32) > mask
        return (product >> 32) + carry

    def shuffle(order: list[int]) -> list[int]:
        chunk, left = 0, 1  # the first index is 0; one word serves for as many of the next as it has room for
        for i in range(n):
            if left == 0:
                bound, left = i + 1, 1
                while bound * (i + 1 + left) <= mask:
                    bound, left = bound * (i + 1 + left), left + 1
                chunk = below(bound)
            left -= 1
            chunk, index = (chunk, chunk) if left == 0 else divmod(chunk, i + 1)
            order[i], order[index] = order[index], order[i]
        return order

    orders = []
    for _ in range(count):
        order = list(range(n))
        while n > 1 and order == sorted(order):
            order = shuffle(order)
        orders.append(order)
    return orders


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
#: Gauss–Legendre on each of 32 panels of [0, 1].
_NODES, _WEIGHTS = np.add.outer(np.arange(32), 0.5 * (_NODES + 1.0)).ravel() / 32, np.tile(_WEIGHTS, 32) / 64


class Atm:
    """z_k = f_k(…, 0) + ∫₀^{x_k} g(∂_k f_k(…, t)) dt with sums f_k of products of Hermite polynomials of (y, x₁..x_k)."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.n, self.m = p, xp, n, m
        self.bounds = np.asarray(p["quantiles"])
        pairs: list[Any] = [np.asarray(p[f"alpha.{k + 1}"]).astype(int) if f"alpha.{k + 1}" in p else [] for k in range(n)]
        #: By component and term, the degrees of the columns that it has.
        self.terms: list[list[dict[int, int]]] = [[{} for _ in range(len(p[f"c.{k + 1}"]))] for k in range(n)]
        for terms, own in zip(self.terms, pairs):
            for term, column, degree in own:
                terms[term][int(column)] = int(degree)

    def _inside(self, t: Array, column: int) -> Array:
        """t, or the quantile of the column that it lies beyond."""
        return _between(t, self.bounds[column, 0], self.bounds[column, 1], self.xp)

    def _basis(self, t: Array, most: int) -> list[Array]:
        """h₀ … h_most, normalised Hermite polynomials; the derivative of h_d is √d h_{d−1}."""
        found = [self.xp.ones_like(t), t]
        for d in range(1, most):
            found.append((t * found[d] - math.sqrt(d) * found[d - 1]) / math.sqrt(d + 1))
        return found[: most + 1]

    def _continued(self, column: int, t: Array, degree: int) -> Array:
        """h_degree of a column between its quantiles, the tangent outside."""
        inside = self._inside(t, column)
        basis = self._basis(inside, max(degree, 1))
        return basis[degree] + (math.sqrt(degree) * basis[degree - 1] * (t - inside) if degree else 0.0)

    def _polynomial(self, k: int, before: list[Array]) -> list[Array]:
        """Given the columns before, f_k(…, t) = Σ_d a_d h_d(t): the a_d."""
        own = self.m + k
        most = max(term.get(own, 0) for term in self.terms[k])
        a = [self.xp.zeros_like(before[0]) for _ in range(most + 1)] if before else [self.xp.zeros(1) for _ in range(most + 1)]
        for coefficient, term in zip(self.p[f"c.{k + 1}"], self.terms[k]):
            stem = coefficient
            for column, degree in term.items():
                if column != own:
                    stem = stem * self._continued(column, before[column], degree)
            a[term.get(own, 0)] = a[term.get(own, 0)] + stem
        return a

    def _component(self, k: int, a: list[Array], x: Array) -> tuple[Array, Array]:
        """S_k and its slope in x_k."""
        xp, own = self.xp, self.m + k

        def slope(t: Array) -> Array:
            basis = self._basis(self._inside(t, own), len(a))
            total = xp.zeros_like(t)
            for d in range(1, len(a)):
                total = total + a[d].reshape(-1, *[1] * (t.ndim - 1)) * (math.sqrt(d) * basis[d - 1])
            return _softplus(math.log(2.0) * total, xp)[0] / math.log(2.0)

        zero = xp.zeros(len(x))
        first, last = self._inside(zero, own), self._inside(x, own)
        nodes = first[:, None] + (last - first)[:, None] * xp.asarray(_NODES)
        inside = (slope(nodes) * xp.asarray(_WEIGHTS)).sum(axis=1) * (last - first)
        origin = sum(part * self._continued(own, zero, d) for d, part in enumerate(a))
        return origin + slope(first) * first + inside + slope(last) * (x - last), slope(x)

    def forward(self, x: Array, y: Array) -> tuple[Array, Array]:
        """z and log det ∂z/∂x."""
        columns = [y[:, j] for j in range(self.m)] + [x[:, k] for k in range(self.n)]
        z, log_det = [], 0.0
        for k in range(self.n):
            own, slope = self._component(k, self._polynomial(k, columns[: self.m + k]), columns[self.m + k])
            z.append(own)
            log_det = log_det + self.xp.log(slope)
        return self.xp.stack(z, axis=1), log_det

    def inverse(self, z: Array, y: Array) -> Array:
        """x of z, one coordinate after the other, by Newton's method within a bracket. Not for JAX's transformations."""
        xp = self.xp
        columns = [y[:, j] for j in range(self.m)]
        for k in range(self.n):
            a, goal = self._polynomial(k, columns), z[:, k]
            low, high = -xp.ones(len(z)), xp.ones(len(z))
            for _ in range(200):
                low = xp.where(self._component(k, a, low)[0] > goal, 2.0 * low, low)
                high = xp.where(self._component(k, a, high)[0] < goal, 2.0 * high, high)
                if bool((self._component(k, a, low)[0] <= goal).all() and (self._component(k, a, high)[0] >= goal).all()):
                    break
            x = 0.5 * (low + high)
            for _ in range(200):
                value, slope = self._component(k, a, x)
                if float(xp.abs(value - goal).max()) < 1e-13:
                    break
                low, high = xp.where(value < goal, x, low), xp.where(value >= goal, x, high)
                newton = x - (value - goal) / slope
                x = xp.where((low < newton) & (newton < high), newton, 0.5 * (low + high))
            columns.append(x)
        return xp.stack(columns[self.m :], axis=1)


#: The methods by the names that model files have for them.
METHODS: dict[str, Any] = {"pcp-map": PcpMap, "cot-flow": CotFlow, "gaussian": Gaussian, "npe": Npe, "atm": Atm, "cp-flow": CpFlow,
                           "flow-matching": FlowMatching}


class Column:
    """t = (u(x) − centre)/scale, with u the bijection of a support to the whole line."""

    def __init__(self, document: dict[str, Any], xp: Any) -> None:
        text = document["support"]
        self.xp, self.kind = xp, text.split("(")[0]
        self.link = document.get("link", "logit")
        bounds = text[text.index("(") + 1 : -1].split(",") if "(" in text else ("0", "1")
        self.low, self.high = float(bounds[0]), float(bounds[1])
        self.centre, self.scale = float(document["centre"]), float(document["scale"])

    def inside(self, x: Array) -> Array:
        """Whether values lie in the support."""
        x = x.real
        if self.kind == "real":
            return self.xp.isfinite(x)
        return (x > 0) & self.xp.isfinite(x) if self.kind == "log" else (self.low < x) & (x < self.high)

    def forward(self, x: Array) -> tuple[Array, Array]:
        """t and log dt/dx."""
        xp = self.xp
        log = xp.log
        if self.kind == "real":
            u, log_slope = x, xp.zeros_like(x)
        elif self.kind == "log":
            u = log(x)
            log_slope = -u
        else:
            # The distances from both bounds, and the logarithm of their growth with x.
            if self.kind == "interval":
                below, above, growth = x - self.low, self.high - x, 0.0
            else:
                below, above, growth = log(x / self.low), log(self.high / x), -log(x)
            if self.link == "straight":
                u, log_slope = _straight(below, above, xp)
                log_slope = log_slope - log(below + above) + growth
            elif self.link == "probit":
                u = _normal_quantile(below, above, xp)
                log_slope = 0.5 * u * u + 0.5 * math.log(2.0 * math.pi) - log(below + above) + growth
            else:
                u = log(below / above)
                log_slope = log(below + above) - log(below) - log(above) + growth
        return (u - self.centre) / self.scale, log_slope - math.log(self.scale)

    def inverse(self, t: Array) -> Array:
        """x of t."""
        xp, u = self.xp, self.centre + self.scale * t
        if self.kind == "real":
            return u
        if self.kind == "log":
            return xp.exp(u)
        if self.link == "straight":
            part = _straight_below(u, xp)
        elif self.link == "probit":
            part = _normal_below(u, xp)
        else:
            part = xp.where(u > 0, 1.0 / (1.0 + xp.exp(-xp.abs(u))), xp.exp(-xp.abs(u)) / (1.0 + xp.exp(-xp.abs(u))))
        if self.kind == "interval":
            return self.low + (self.high - self.low) * part
        return self.low * xp.exp(math.log(self.high / self.low) * part)


class Exchangeable:
    """Symmetric features of columns that hold points in no particular order."""

    def __init__(self, document: dict[str, Any], xp: Any) -> None:
        self.xp, self.columns, self.points, self.degree = xp, document["columns"], document["points"], document["degree"]
        self.floors = xp.asarray([float(one) for one in document["floors"]])

    def features(self, u: Array) -> list[Array]:
        """The features of rows of all given values after their bijections, one array each."""
        xp, d = self.xp, len(self.floors)
        w = u[:, xp.asarray(self.columns)].reshape(len(u), self.points, d)
        mean = w.mean(axis=1)
        features = [mean[:, j] for j in range(d)]
        if self.points == 1:
            return features
        w = w - mean[:, None, :]
        deviation = xp.sqrt((w * w).mean(axis=1) + self.floors**2)
        w = w / deviation[:, None, :]
        features += [xp.log(deviation[:, j]) for j in range(d)]
        for degree in range(2, self.degree + 1):
            for factors in itertools.combinations_with_replacement(range(d), degree):
                if degree == 2 and factors[0] == factors[1]:
                    continue
                total = xp.ones_like(w[:, :, 0])
                for j in factors:
                    total = total * w[:, :, j]
                sums = total.mean(axis=1)
                features.append(xp.arctanh((1.0 - 1e-6) * sums) if degree == 2 else sums)
        return features


def _method_settings(document: dict[str, Any]) -> dict[str, Any]:
    """The method's name and settings; version 1 had name and sizes at the top of the document, and a table for flows."""
    if "shape" not in document:
        return document["settings"]["method"]
    sizes = document["shape"]
    return {**document["settings"]["flow"], **sizes, "name": document["method"], "output_activation": sizes.get("output")}


class Model:
    """A posterior π(x | y) in the user's units: transforms around a map, or the maps of an ensemble."""

    def __init__(self, document: dict[str, Any], tensors: dict[str, Array], xp: Any = np, prefix: str = "") -> None:
        self.document, self.xp = document, xp
        self.target_names, self.given_names = document["target_names"], document["given_names"]
        self.target = [Column(one, xp) for one in document["target_transform"]["columns"]]
        self.given = [Column(one, xp) for one in document["given_transform"]["columns"]]
        transform = document["given_transform"]
        self.exchangeable = [Exchangeable(one, xp) for one in transform.get("exchangeable", [])]
        self.features = [Column(one, xp) for one in transform.get("features", [])]
        self.asinh = transform.get("asinh", [])
        self.pca = document["given_transform"].get("pca")
        self.components = xp.asarray(tensors[f"{prefix}given.pca.components"]) if self.pca else None
        self.reduction = document["given_transform"].get("reduction")
        self.reduction_weights = xp.asarray(tensors[f"{prefix}given.reduction.weights"]) if self.reduction else None
        self.whitening = document["target_transform"].get("whitening")
        if self.whitening:
            self.mean, self.deviations = (np.array([float(value) for value in self.whitening[key]]) for key in ("mean", "deviations"))
            self.directions = tensors[f"{prefix}target.whitening.directions"]
        settings = _method_settings(document)
        if settings["name"] not in METHODS:
            raise ValueError(f"the evaluator does not know the method {settings['name']}; it knows {', '.join(METHODS)}")
        members = document.get("members") or [{"weight": 1.0}]
        self.weights = [member["weight"] for member in members]
        grouped = sum(len(group.columns) for group in self.exchangeable)
        n, m = len(self.target), len(self.given) - grouped + len(self.features) + sum(one["beside"] for one in self.asinh)
        if self.pca:
            m = len(self.pca["deviations"])
        elif self.reduction:
            m = len(self.reduction["correlations"])
        self.maps = []
        for number in range(len(members)):
            head = f"{prefix}{'' if number == 0 else f'member-{number + 1}.'}map."
            own = {name[len(head) :]: xp.asarray(values) for name, values in tensors.items() if name.startswith(head)}
            self.maps.append(METHODS[settings["name"]](settings, own, n, m, xp))
        #: The density of the given columns alone, of a joint model.
        self.marginal = Model(document["marginal"], tensors, xp, "marginal.") if document.get("marginal") else None

    def transform_given(self, y: Array) -> Array:
        """Rows of given values as the map sees them."""
        xp = self.xp
        if not self.given:
            return xp.zeros((len(y), 0))
        t = xp.stack([column.forward(y[:, j])[0] for j, column in enumerate(self.given)], axis=1)
        if self.reduction is not None:
            return (t - xp.asarray([float(value) for value in self.reduction["mean"]])) @ self.reduction_weights
        if self.exchangeable:
            u = xp.stack([column.centre + column.scale * t[:, j] for j, column in enumerate(self.given)], axis=1)
            own = [t[:, j] for j in range(len(self.given)) if not any(j in group.columns for group in self.exchangeable)]
            features = [one for group in self.exchangeable for one in group.features(u)]
            scaled = [column.forward(one)[0] for column, one in zip(self.features, features)]
            t = xp.stack(own + scaled, axis=1)
        if self.asinh:
            own, beside = [t[:, j] for j in range(len(self.given))], []
            for one in self.asinh:
                origin, width, centre, scale = (float(one[key]) for key in ("origin", "width", "centre", "scale"))
                seen = (xp.arcsinh((y[:, one["column"]] - origin) / width) - centre) / scale
                if one["beside"]:
                    beside.append(seen)
                else:
                    own[one["column"]] = seen
            t = xp.stack(own + beside, axis=1)
        if self.pca is None:
            return t
        mean, deviations = (xp.asarray([float(value) for value in self.pca[key]]) for key in ("mean", "deviations"))
        return ((t - mean) @ self.components) / deviations

    def transform_target(self, x: Array) -> tuple[Array, Array]:
        """Rows of target values as the map sees them, and the log-determinant of that."""
        pairs = [column.forward(x[:, j]) for j, column in enumerate(self.target)]
        t, log_det = self.xp.stack([pair[0] for pair in pairs], axis=1), sum(pair[1] for pair in pairs)
        if not self.whitening:
            return t, log_det
        return ((t - self.mean) @ self.directions.T) / self.deviations, log_det - np.log(self.deviations).sum()

    def restore_target(self, t: Array) -> Array:
        """Back to the user's units."""
        if self.whitening:
            t = self.mean + (t * self.deviations) @ self.directions
        return self.xp.stack([column.inverse(t[:, j]) for j, column in enumerate(self.target)], axis=1)

    def _log_density(self, x: Array, y: Array) -> Array:
        xp = self.xp
        t, log_det = self.transform_target(x)
        each = []
        for map_ in self.maps:
            z, own = map_.forward(t, y)
            each.append(own + _reference_log_density(z, getattr(map_, "tail", None), xp))
        if len(each) == 1:
            return each[0] + log_det
        most = each[0]
        for other in each[1:]:
            most = xp.where(other.real > most.real, other, most)
        return most + xp.log(sum(weight * xp.exp(one - most) for weight, one in zip(self.weights, each))) + log_det

    def log_prob(self, x: Array, y: Array = None) -> Array:
        """log π(x | y) of every row; −∞ outside the support."""
        xp = self.xp
        x = xp.asarray(x)
        y = self.transform_given(xp.zeros((len(x), 0)) if y is None else xp.asarray(y))
        inside = xp.stack([column.inside(x[:, j]) for j, column in enumerate(self.target)], axis=1).all(axis=1)
        safe = xp.stack([column.inverse(xp.zeros(len(x))) for column in self.target], axis=1)
        return xp.where(inside, self._log_density(xp.where(inside[:, None], x, safe), y), -math.inf)

    def gradient(self, x: Array, y: Array = None) -> Array:
        """∇ₓ log π(x | y) of every row, by complex steps."""
        x = np.asarray(x, dtype=float)
        y = self.transform_given(np.zeros((len(x), 0)) if y is None else np.asarray(y, dtype=float))
        columns = []
        for j in range(x.shape[1]):
            moved = x.astype(complex)
            moved[:, j] += 1j * _STEP
            columns.append(self._log_density(moved, y).imag / _STEP)
        return np.stack(columns, axis=1)

    def push(self, z: Array, y: Array = None, member: int = 0) -> Array:
        """x = g(z; y) of every row of reference points, by one member."""
        xp = self.xp
        y = self.transform_given(xp.zeros((len(z), 0)) if y is None else xp.asarray(y))
        return self.restore_target(self.maps[member].inverse(xp.asarray(z), y))

    def pull(self, x: Array, y: Array = None, member: int = 0) -> Array:
        """z = g⁻¹(x; y) of every row, by one member."""
        xp = self.xp
        x = xp.asarray(x)
        y = self.transform_given(xp.zeros((len(x), 0)) if y is None else xp.asarray(y))
        return self.maps[member].forward(self.transform_target(x)[0], y)[0]

    def sample(self, y: Array, n: int, seed: int = 0) -> Array:
        """n draws at one row y (None for a model without given columns)."""
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n, np.asarray(self.weights) / sum(self.weights))
        rows = np.zeros((1, 0)) if y is None else np.atleast_2d(np.asarray(y, dtype=float))
        parts = []
        for member, count in enumerate(counts):
            if count == 0:
                continue
            z, tail = rng.standard_normal((count, len(self.target))), getattr(self.maps[member], "tail", None)
            if tail is not None:
                share, degrees = tail
                far = np.sqrt(degrees / rng.chisquare(degrees, size=(count, 1)))
                z = z * np.where(rng.random((count, 1)) < share, far, 1.0)
            parts.append(self.push(z, np.repeat(rows, count, axis=0), member))
        return rng.permutation(np.concatenate(parts))


def read(path: Any, xp: Any = np) -> Model:
    """The model of a file; ``xp`` is ``numpy`` or ``jax.numpy``."""
    return Model(*tensors_of(path), xp)
