#!/usr/bin/env python3
"""Golden values for crates/brenier/tests/all/fixtures.rs, computed from the formulas in docs/methods.md with NumPy alone.

usage: golden.py FOLDER             writes every fixture, computed anew from its stored parameters and points
       golden.py --seed 7 FOLDER    the same sizes with other random parameters and points
       golden.py --check            compares the committed fixtures with what is computed here, to 1e-10
needs: pip install numpy

The library differentiates by hand, in reverse. Here nothing is differentiated by hand but the activations: derivatives in x
and q are second-order Taylor coefficients carried forwards (a jet), derivatives in parameters and points are complex steps,
Im f(p + ih)/h with h = 1e-30, which are exact to rounding. To test the library on other numbers than the committed ones:

    python3 tools/golden.py --seed 7 /tmp/golden && BRENIER_FIXTURES=/tmp/golden cargo test -p brenier --test all -- fixtures::
"""
import argparse
import json
import math
import sys
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("golden.py needs NumPy: pip install numpy")
from golden_npe import npe

COMMITTED = Path(__file__).resolve().parent.parent / "crates/brenier/tests/fixtures"
TOLERANCE = 1e-10
STEP = 1e-30
TIME = 0.37  # where the flow's potential is recorded by itself


# Activations: f, f' and f'' at s. Branches look at the real part, so that complex steps pass through them.

def softplus(s):
    sign = np.where(s.real > 0, 1.0, -1.0)
    decay = np.exp(-sign * s)
    sigmoid = np.where(s.real > 0, 1.0, decay) / (1.0 + decay)
    return np.where(s.real > 0, s, 0.0) + np.log1p(decay), sigmoid, sigmoid * (1.0 - sigmoid)


def log_two_cosh(s):
    size = np.where(s.real > 0, s, -s)
    slope = np.tanh(s)
    return size + np.log1p(np.exp(-2.0 * size)), slope, 1.0 - slope * slope


def relu(s):
    return np.where(s.real > 0, s, 0.0)


def elu(s):
    return np.where(s.real > 0, s, np.expm1(np.where(s.real > 0, 0.0, s)))


class Jet:
    """Features of rows with their gradients and Hessians in d variables: an array of rows × features × (1 + d + d²)."""

    def __init__(self, terms, d):
        self.terms, self.d = terms, d

    @classmethod
    def variables(cls, values):
        """The variables themselves: gradients are unit vectors, Hessians vanish."""
        rows, d = values.shape
        terms = np.zeros((rows, d, 1 + d + d * d), dtype=values.dtype)
        terms[:, :, 0] = values
        terms[:, :, 1 : 1 + d] = np.eye(d)
        return cls(terms, d)

    @property
    def value(self):
        return self.terms[:, :, 0]

    @property
    def gradient(self):
        return self.terms[:, :, 1 : 1 + self.d]

    @property
    def hessian(self):
        return self.terms[:, :, 1 + self.d :].reshape(*self.terms.shape[:2], self.d, self.d)

    def __add__(self, other):
        return Jet(self.terms + other.terms, self.d)

    def mix(self, weights):
        """weights · features."""
        return Jet(weights @ self.terms, self.d)

    def scale(self, factors):
        """features times what does not depend on the variables."""
        return Jet(self.terms * factors[..., None], self.d)

    def shift(self, constants):
        terms = self.terms + np.zeros_like(constants[..., None])
        terms[:, :, 0] += constants
        return Jet(terms, self.d)

    def apply(self, activation):
        """f(s): gradient f' ∇s, Hessian f' ∇²s + f'' ∇s ∇sᵀ."""
        f, slope, curvature = activation(self.value)
        outer = self.gradient[..., :, None] * self.gradient[..., None, :]
        terms = self.terms * slope[..., None]
        terms[:, :, 0] = f
        terms[:, :, 1 + self.d :] += (curvature[..., None, None] * outer).reshape(*terms.shape[:2], -1)
        return Jet(terms, self.d)

    def half_square(self):
        """½‖features‖² as one feature."""
        return self.apply(lambda s: (0.5 * s * s, s, np.ones_like(s))).mix(np.ones((1, self.terms.shape[1])))


def log_det(matrices):
    """Of symmetric positive definite matrices, by elimination; analytic in their entries."""
    rest, total = matrices.copy(), 0.0
    while rest.shape[1] > 0:
        pivot, column = rest[:, 0, 0], rest[:, 1:, 0]
        total = total + np.log(pivot)
        rest = rest[:, 1:, 1:] - column[:, :, None] * column[:, None, :] / pivot[:, None, None]
    return total


def complex_step(function, tensors):
    """The gradient of a scalar function of named tensors; None where it vanishes for every entry."""
    gradients = {}
    for name, tensor in tensors.items():
        gradient = np.zeros(tensor.shape)
        for index in np.ndindex(tensor.shape):
            moved = tensor.astype(complex)
            moved[index] += 1j * STEP
            gradient[index] = function({**tensors, name: moved}).imag / STEP
        gradients[name] = gradient if np.any(gradient) else None
    return gradients


def negative_log_gaussian(z):
    return 0.5 * (z * z).sum(axis=1) + 0.5 * z.shape[1] * math.log(2.0 * math.pi)


def log_gamma(x):
    """log Γ of a number, by Stirling's series beyond 20; analytic, so that complex steps pass through it."""
    below = 0.0
    while x.real < 20.0:
        below = below + np.log(x)
        x = x + 1.0
    bernoulli = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730]
    series = sum(b / (2 * k * (2 * k - 1) * x ** (2 * k - 1)) for k, b in enumerate(bernoulli, 1))
    return (x - 0.5) * np.log(x) - x + 0.5 * math.log(2.0 * math.pi) + series - below


def negative_log_heavy_tailed(z, logit, log):
    """−log((1 − ε) N(0, I) + ε t_ν), ε = 1/(1 + e^−logit), ν = 1 + e^log."""
    share, degrees = 1.0 / (1.0 + np.exp(-logit)), 1.0 + np.exp(log)
    n, square = z.shape[1], (z * z).sum(axis=1)
    constant = log_gamma(0.5 * degrees) - log_gamma(0.5 * (degrees + n)) + 0.5 * n * np.log(degrees * math.pi)
    student = 0.5 * (degrees + n) * np.log1p(square / degrees) + constant
    return student - np.log(share + (1.0 - share) * np.exp(student - negative_log_gaussian(z)))


# PCP-Map: z = ∇ₓG, log det ∇²ₓG.

def affine_front(p, variables, y, depth):
    """The jet of u = L(y)(x − μ(y)), L lower triangular, its columns stored from the diagonal down."""
    n, v = variables.d, y
    for k in range(depth):
        v = elu(v @ p[f"Lv.{k}"].T + p[f"bv.{k}"])
    values = y @ p["Lf.0"].T + p["bf.0"] + v @ p[f"Lf.{depth}"].T + p[f"bf.{depth}"]
    factor, place = np.zeros((len(y), n, n), dtype=values.dtype), n
    for j in range(n):
        factor[:, j:, j] = values[:, place : place + n - j]
        factor[:, j, j] = np.exp(8.0 * np.tanh(factor[:, j, j] / 8.0))
        place += n - j
    return variables.shift(-values[:, :n]).mix(factor)


def pcp_potential(p, x, y, depth, output):
    """The jet of G(x; y) in x."""
    variables = Jet.variables(x)
    if "Lf.0" in p:
        variables = affine_front(p, variables, y, depth)
    w, v = variables, y
    for k in range(depth + 1):
        gate = relu(v @ p[f"Lwv.{k}"].T + p[f"bwv.{k}"])
        s = w.scale(gate).mix(p[f"Lw.{k}"]).shift(v @ p[f"Lvw.{k}"].T + p[f"bw.{k}"])
        if k > 0:
            s = s + variables.scale(v @ p[f"Lxv.{k}"].T + p[f"bxv.{k}"]).mix(p[f"Lx.{k}"])
        if k < depth:
            w = s.apply(softplus)
            v = elu(v @ p[f"Lv.{k}"].T + p[f"bv.{k}"])
    network = s.apply(softplus) if output == "softplus" else s
    gamma = p["gamma"]
    smooth = softplus(gamma)[0]
    everywhere = np.ones((len(x), 1))
    return network.scale(smooth[0] * everywhere) + variables.half_square().scale((relu(gamma[1]) + smooth[2]) * everywhere)


def pcp(inputs):
    depth, output = inputs["depth"], inputs["output_activation"]
    p, x, y = inputs["params"], inputs["x"], inputs["y"]

    def evaluate(tensors):
        g = pcp_potential(tensors, tensors["x"], y, depth, output)
        z, hessian = g.gradient[:, 0], g.hessian[:, 0]
        determinant = log_det(hessian)
        tail = [tensors[name][0] for name in ("tail_logit", "log_degrees") if name in tensors]
        cost = negative_log_heavy_tailed(z, *tail) if tail else negative_log_gaussian(z)
        return g.value[:, 0], z, hessian, determinant, determinant - cost

    tensors = {**p, "x": x}
    potential, z, hessian, determinant, log_density = evaluate(tensors)
    return {
        "potential": potential,
        "z": z,
        "hessian": hessian,
        "log_det": determinant,
        "log_density": log_density,
        "mean_nll": -log_density.mean(),
        "grad_mean_nll": complex_step(lambda moved: -evaluate(moved)[4].mean(), tensors),
    }


# COT-Flow: dx/dt = −∇ₓΦ, with the log-determinant and both costs, by classical Runge–Kutta steps.

def cot_potential(p, t, x, y, depth):
    """The jet of Φ in q = (t, x, y), with one t for all rows or one for each."""
    q = Jet.variables(np.concatenate([np.broadcast_to(np.reshape(t, (-1, 1)), (len(x), 1)), x, y], axis=1))
    u = q.mix(p["A0"]).shift(p["b0"][None]).apply(log_two_cosh)
    for i in range(1, depth):
        step = u.mix(p[f"A{i}"]).shift(p[f"b{i}"][None]).apply(log_two_cosh)
        u = u + step.scale(np.full((1, 1), 1.0 / (depth - 1)))
    quadratic = q.mix(p["A"].T).half_square()
    return (u.mix(p["a"][None]) + quadratic + q.mix(p["b"][None])).shift(p["c"][None])


def laplacian(phi, n):
    return np.trace(phi.hessian[:, 0, 1 : 1 + n, 1 : 1 + n], axis1=1, axis2=2)


def cot_rates(p, t, state, y, depth):
    """Time derivatives of (x, log det, transport cost, HJB cost), as columns."""
    n = state.shape[1] - 3
    phi = cot_potential(p, t, state[:, :n], y, depth)
    gradient = phi.gradient[:, 0, 1 : 1 + n]
    speed = 0.5 * (gradient * gradient).sum(axis=1)
    residual = speed - phi.gradient[:, 0, 0]
    residual = np.where(residual.real < 0, -residual, residual)
    return np.column_stack([-gradient, -laplacian(phi, n), speed, residual])


def cot(inputs):
    n, depth, steps = inputs["n"], inputs["depth"], inputs["time_steps"]
    p, x, y = inputs["params"], inputs["x"], inputs["y"]

    def evaluate(tensors):
        state = np.concatenate([tensors["x"], np.zeros((len(x), 3))], axis=1)
        h = 1.0 / steps
        for i in range(steps):
            k1 = cot_rates(tensors, i * h, state, y, depth)
            k2 = cot_rates(tensors, (i + 0.5) * h, state + 0.5 * h * k1, y, depth)
            k3 = cot_rates(tensors, (i + 0.5) * h, state + 0.5 * h * k2, y, depth)
            k4 = cot_rates(tensors, (i + 1) * h, state + h * k3, y, depth)
            state = state + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        nll = negative_log_gaussian(state[:, :n]) - state[:, n]
        costs = inputs["alpha_transport"] * state[:, n + 1] + inputs["alpha_hjb"] * state[:, n + 2]
        return state, nll, (nll + costs).mean()

    def warm(tensors):
        """Mean of ½‖∇ₓΦ(t, x_t; y) + z − x‖² at given t and z."""
        t, noise = inputs["t"], inputs["noise"]
        moved = (1.0 - t)[:, None] * x + t[:, None] * noise
        miss = cot_potential(tensors, t, moved, y, depth).gradient[:, 0, 1 : 1 + n] + noise - x
        return 0.5 * (miss * miss).sum(axis=1).mean()

    tensors = {**p, "x": x}
    phi = cot_potential(p, TIME, x, y, depth)
    state, nll, objective = evaluate(tensors)
    return {
        "phi_at_t_0_37": phi.value[:, 0],
        "grad_phi_at_t_0_37": phi.gradient[:, 0],
        "laplacian_x_at_t_0_37": laplacian(phi, n),
        "z": state[:, :n],
        "log_det": state[:, n],
        "transport_cost": state[:, n + 1],
        "hjb_cost": state[:, n + 2],
        "nll": nll,
        "objective": objective,
        "grad_objective": complex_step(lambda moved: evaluate(moved)[2], tensors),
        "warm_loss": warm(p),
        "grad_warm_loss": complex_step(warm, p),
    }


# The conditional Gaussian: z = V diag(e^{−s(y)}) Vᵀ (x − μ(y)).

def gaussian(inputs):
    p, x, y = inputs["params"], inputs["x"], inputs["y"]

    def evaluate(tensors):
        axes = tensors["V"]
        spread = tensors["c"] + (y @ tensors["C"].T if "C" in tensors else np.zeros((len(y), 1)))
        z = ((tensors["x"] - y @ tensors["A"].T - tensors["b"]) @ axes * np.exp(-spread)) @ axes.T
        # 2 log |det V| is the log-determinant of VᵀV.
        determinant = log_det((axes.T @ axes)[None]) - spread.sum(axis=1)
        return z, determinant, determinant - negative_log_gaussian(z)

    z, determinant, log_density = evaluate({**p, "x": x})
    return {
        "z": z,
        "log_det": determinant,
        "log_density": log_density,
        # Its parameters are not found by gradient steps.
        "grad_mean_nll": complex_step(lambda moved: -evaluate({**p, **moved})[2].mean(), {"x": x}),
    }


def mmd(inputs):
    """The V-statistic with the kernel exp(−‖a − b‖²/2), and its root."""

    def mean_kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=2)).mean()

    p, q = inputs["P"], inputs["Q"]
    squared = mean_kernel(p, p) + mean_kernel(q, q) - 2.0 * mean_kernel(p, q)
    return {"mmd_squared": squared, "mmd": math.sqrt(squared)}


# One line per kind of fixture: what is given, what computes the rest.
KINDS = {
    "pcp_map": (("params", "x", "y"), pcp),
    "cot_flow": (("params", "x", "y", "t", "noise"), cot),
    "npe": (("params", "x", "y"), npe),
    "gaussian": (("params", "x", "y"), gaussian),
    "mmd": (("P", "Q"), mmd),
}


# Kinds that another program computes.
ELSEWHERE = {"cp_flow": "golden_cpflow.py", "flow_matching": "golden_matching.py"}


def arrays(value):
    """Lists of numbers as arrays, in dictionaries too."""
    if isinstance(value, dict):
        return {key: arrays(item) for key, item in value.items()}
    return np.array(value) if isinstance(value, list) else value


def plain(value):
    """Arrays as lists, for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return float(value) if isinstance(value, np.floating) else value


def redraw(rng, name, value):
    """Other random numbers of the same shape. Weights on features stay non-negative, some of them zero."""
    if isinstance(value, dict):
        return {key: redraw(rng, key, item) for key, item in value.items()}
    drawn = rng.standard_normal(value.shape)
    if name == "t":
        return rng.random(value.shape)
    if name == "gamma":
        return 0.1 + 0.3 * np.abs(drawn)
    if name not in ("x", "y", "noise", "P", "Q"):
        drawn = drawn / math.sqrt(value.shape[-1])
    return np.maximum(drawn, 0.0) if name.startswith("Lw.") else drawn


def compute(path, seed):
    """The whole fixture anew: sizes and settings of the stored one, its points or others, and the values."""
    stored = arrays(json.loads(path.read_text()))
    if stored["kind"] not in KINDS:
        sys.exit(f"{path}: unknown kind {stored['kind']!r}; known are {', '.join(KINDS)}")
    given, values = KINDS[stored["kind"]]
    if seed is not None:
        rng = np.random.default_rng([seed, *path.name.encode()])
        stored.update({key: redraw(rng, key, stored[key]) for key in given})
    computed = values(stored)
    # What is neither computed nor given are sizes and settings.
    kept = {key: item for key, item in stored.items() if key not in computed}
    return {**kept, **computed}, stored


def differences(name, computed, stored):
    """Name and largest difference, relative to the largest magnitude stored, of every tensor."""
    if isinstance(computed, dict):
        if computed.keys() != stored.keys():
            sys.exit(f"{name}: the names differ: {sorted(computed.keys() ^ stored.keys())}")
        for key in computed:
            yield from differences(f"{name}: {key}", computed[key], stored[key])
    elif isinstance(computed, str):
        yield name, 0.0 if computed == stored else math.inf
    else:
        one, other = (np.zeros(1) if value is None else np.asarray(value) for value in (computed, stored))
        if computed is not None and stored is not None and one.shape != other.shape:
            sys.exit(f"{name}: the shapes differ: {one.shape} computed, {other.shape} stored")
        scale = max(np.abs(other).max(), 1e-300)
        largest = np.abs(one - other).max() / scale
        yield name, largest if np.isfinite(largest) else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write the fixtures")
    parser.add_argument("--check", action="store_true", help="compare the committed fixtures instead of writing")
    parser.add_argument("--seed", type=int, help="draw other parameters and points")
    options = parser.parse_args()
    if options.check == (options.folder is not None):
        parser.error("give either a folder to write to or --check")
    if options.check and options.seed is not None:
        parser.error("--check compares the stored points; leave out --seed")
    failed = False
    for path in sorted(COMMITTED.glob("*.json")):
        if json.loads(path.read_text())["kind"] in ELSEWHERE:
            continue
        computed, stored = compute(path, options.seed)
        if options.check:
            compared = list(differences(path.name, computed, stored))
            wrong = [(name, value) for name, value in compared if not value <= TOLERANCE]
            for name, value in wrong:
                print(f"{name}: differs by {value:.1e} of the largest value")
            failed |= bool(wrong)
            print(f"{path.name}: {len(compared)} entries, largest difference {max(value for _, value in compared):.1e}")
        else:
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / path.name).write_text(json.dumps(plain(computed)))
            print(options.folder / path.name)
    if failed:
        sys.exit(f"some values differ by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
