"""Evaluates model files with NumPy alone: an independent reading of docs/model-file.md and docs/methods.md.

This file needs nothing else of the package and can be copied beside a paper::

    model = read("model.brenier")
    model.log_prob(x, y)            # as Posterior.log_prob, rows of x and y
    model.gradient(x, y)            # of log π(x | y) in x, by complex steps
    model.sample(y, n, seed=0)      # n draws at one row y, from NumPy's generator

Derivatives that the densities need are carried forwards as second-order Taylor coefficients (:class:`Jet`); the gradient of a
log density is a complex step, exact to rounding. With ``read(path, jax.numpy)`` everything runs under JAX (switch on double
precision), where ``jax.grad`` takes the place of :meth:`Model.gradient`.

A method is one class in :data:`METHODS`: ``forward`` gives z and log |det ∂z/∂x| of rows, ``inverse`` gives x of z.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
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


class PcpMap:
    """z = ∇ₓG with G a network that is convex in x."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.depth = p, xp, int(settings["depth"])
        self.softplus_output = settings.get("output_activation") == "softplus"
        self.front = "Lf.0" in p
        self.gated = "Lv.0" in p or self.depth == 0 and "Lvw.0" in p

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
        """x with ∇ₓG(x; y) = z by damped Newton: it minimises the strongly convex G − zᵀx. Not for JAX's transformations."""
        xp = self.xp
        x = xp.zeros_like(z)
        for _ in range(500):
            g = self._potential(x, y)
            residual = g.gradient[:, 0] - z
            if float(xp.abs(residual).max()) < 1e-12:
                break
            step = xp.linalg.solve(g.hessian[:, 0], residual[:, :, None])[:, :, 0]
            value, slope = g.value[:, 0] - (z * x).sum(axis=1), (residual * step).sum(axis=1)
            length = xp.ones(len(x))
            for _ in range(60):
                moved = self._potential(x - length[:, None] * step, y).value[:, 0] - (z * (x - length[:, None] * step)).sum(axis=1)
                rising = moved > value - 1e-4 * length * slope + 1e-14 * (1.0 + xp.abs(value))
                if not bool(rising.any()):
                    break
                length = xp.where(rising, 0.5 * length, length)
            x = x - length[:, None] * step
        return x


class CotFlow:
    """z = x(1) of dx/dt = −∇ₓΦ(t, x; y), x(0) = x, by classical Runge–Kutta steps."""

    def __init__(self, settings: dict[str, Any], p: dict[str, Array], n: int, m: int, xp: Any) -> None:
        self.p, self.xp, self.n = p, xp, n
        self.depth, self.steps = int(settings["depth"]), int(settings["evaluation_steps"])
        self.layers = len(settings.get("embedding") or [])

    def _embedded(self, y: Array) -> Array:
        for layer in range(1, self.layers + 1):
            y = y @ self.p[f"E{layer}"].T + self.p[f"d{layer}"]
            y = self.xp.tanh(y) if layer < self.layers else y
        return y

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
        state = self._integrate(state, self._embedded(y), 0.0, 1.0 / self.steps)
        return state[:, : self.n], state[:, self.n]

    def inverse(self, z: Array, y: Array) -> Array:
        """x(0) from x(1) = z, in as many steps."""
        state = self.xp.concatenate([z, self.xp.zeros((z.shape[0], 1))], axis=1)
        return self._integrate(state, self._embedded(y), 1.0, -1.0 / self.steps)[:, : self.n]


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


#: The methods by the names that model files have for them.
METHODS: dict[str, Any] = {"pcp-map": PcpMap, "cot-flow": CotFlow, "gaussian": Gaussian}


class Column:
    """t = (u(x) − centre)/scale, with u the bijection of a support to the whole line."""

    def __init__(self, document: dict[str, Any], xp: Any) -> None:
        text = document["support"]
        self.xp, self.kind = xp, text.split("(")[0]
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
        elif self.kind == "interval":
            u = log((x - self.low) / (self.high - x))
            log_slope = log(self.high - self.low) - log(x - self.low) - log(self.high - x)
        else:
            below, above = log(x / self.low), log(self.high / x)
            u = log(below / above)
            log_slope = log(math.log(self.high / self.low)) - log(below) - log(above) - log(x)
        return (u - self.centre) / self.scale, log_slope - math.log(self.scale)

    def inverse(self, t: Array) -> Array:
        """x of t."""
        xp, u = self.xp, self.centre + self.scale * t
        if self.kind == "real":
            return u
        if self.kind == "log":
            return xp.exp(u)
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
        self.pca = document["given_transform"].get("pca")
        self.components = xp.asarray(tensors[f"{prefix}given.pca.components"]) if self.pca else None
        self.reduction = document["given_transform"].get("reduction")
        self.reduction_weights = xp.asarray(tensors[f"{prefix}given.reduction.weights"]) if self.reduction else None
        settings = document["settings"]["method"]
        if settings["name"] not in METHODS:
            raise ValueError(f"the evaluator does not know the method {settings['name']}; it knows {', '.join(METHODS)}")
        members = document.get("members") or [{"weight": 1.0}]
        self.weights = [member["weight"] for member in members]
        grouped = sum(len(group.columns) for group in self.exchangeable)
        n, m = len(self.target), len(self.given) - grouped + len(self.features)
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
        if self.pca is None:
            return t
        mean, deviations = (xp.asarray([float(value) for value in self.pca[key]]) for key in ("mean", "deviations"))
        return ((t - mean) @ self.components) / deviations

    def _log_density(self, x: Array, y: Array) -> Array:
        xp = self.xp
        pairs = [column.forward(x[:, j]) for j, column in enumerate(self.target)]
        t = xp.stack([pair[0] for pair in pairs], axis=1)
        log_det = sum(pair[1] for pair in pairs)
        each = []
        for map_ in self.maps:
            z, own = map_.forward(t, y)
            each.append(own - 0.5 * (z * z).sum(axis=1) - 0.5 * len(self.target) * math.log(2.0 * math.pi))
        if len(each) == 1:
            return each[0] + log_det
        most = each[0]
        for other in each[1:]:
            most = xp.where(other.real > most.real, other, most)
        return most + xp.log(sum(weight * xp.exp(one - most) for weight, one in zip(self.weights, each))) + log_det

    def log_prob(self, x: Array, y: Array = None) -> Array:
        """log π(x | y) of every row; −∞ outside of the support."""
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
        t = self.maps[member].inverse(xp.asarray(z), y)
        return xp.stack([column.inverse(t[:, j]) for j, column in enumerate(self.target)], axis=1)

    def pull(self, x: Array, y: Array = None, member: int = 0) -> Array:
        """z = g⁻¹(x; y) of every row, by one member."""
        xp = self.xp
        x = xp.asarray(x)
        y = self.transform_given(xp.zeros((len(x), 0)) if y is None else xp.asarray(y))
        t = xp.stack([column.forward(x[:, j])[0] for j, column in enumerate(self.target)], axis=1)
        return self.maps[member].forward(t, y)[0]

    def sample(self, y: Array, n: int, seed: int = 0) -> Array:
        """n draws at one row y (None for a model without given columns)."""
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n, np.asarray(self.weights) / sum(self.weights))
        rows = np.zeros((1, 0)) if y is None else np.atleast_2d(np.asarray(y, dtype=float))
        parts = [
            self.push(rng.standard_normal((count, len(self.target))), np.repeat(rows, count, axis=0), member)
            for member, count in enumerate(counts)
            if count
        ]
        return rng.permutation(np.concatenate(parts))


def read(path: Any, xp: Any = np) -> Model:
    """The model of a file; ``xp`` is ``numpy`` or ``jax.numpy``."""
    return Model(*tensors_of(path), xp)
