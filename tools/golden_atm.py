#!/usr/bin/env python3
"""Golden values of adaptive transport maps for crates/brenier-core, computed from the formulas in docs/methods.md with PyTorch.

usage: golden_atm.py FOLDER             writes atm_n2.json and atm_n3.json, computed anew
       golden_atm.py --seed 7 FOLDER    the same sizes with other random coefficients and points
       golden_atm.py --check            compares the committed fixtures with what is computed here, to 1e-10
needs: pip install numpy torch

The library integrates by Clenshaw-Curtis rules inside the quantiles, in closed form outside, and differentiates by hand. Here all
is integrated by Gauss-Legendre rules on the pieces between kinks, polynomials come from their monomial coefficients, and every
derivative is automatic, through the nodes of the rules.
"""
import argparse
import json
import math
import sys
from pathlib import Path

try:
    import numpy as np
    import torch
except ImportError:
    sys.exit("golden_atm.py needs NumPy and PyTorch: pip install numpy torch")

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
COMMITTED = Path(__file__).resolve().parent.parent / "crates/brenier-core/tests/fixtures/atm"
TOLERANCE = 1e-10
EPSILON = 1e-9
NODES, WEIGHTS = (torch.tensor(part) for part in np.polynomial.legendre.leggauss(80))
# Name, n, m, rows, multi-indices of each component as lists of (column of (y, x), degree).
CASES = [
    (
        "atm_n2",
        2,
        2,
        9,
        [
            [[], [(2, 1)], [(0, 1)], [(0, 1), (2, 1)], [(2, 2)], [(1, 1)], [(0, 2)], [(2, 3)]],
            [[], [(3, 1)], [(2, 1)], [(2, 2)], [(2, 1), (3, 1)], [(0, 1)], [(0, 1), (2, 1)], [(3, 2)], [(3, 3)], [(3, 4)]],
        ],
    ),
    (
        "atm_n3",
        3,
        0,
        7,
        [
            [[]],
            [[], [(1, 1)], [(0, 1)], [(0, 2)], [(1, 2)], [(0, 1), (1, 1)]],
            [[], [(2, 1)], [(1, 1)], [(0, 1)], [(0, 1), (1, 1)], [(1, 1), (2, 1)], [(0, 1), (2, 1)], [(0, 1), (1, 1), (2, 1)]],
        ],
    ),
]


def polynomial(degree, derivative, t):
    """He_d/sqrt(d!) or its derivative, by Horner's scheme on monomial coefficients."""
    coefficients = [0.0] * degree + [1.0 / math.sqrt(math.factorial(degree))]
    monomials = np.polynomial.hermite_e.herme2poly(coefficients)
    for _ in range(derivative):
        monomials = np.polynomial.polynomial.polyder(monomials)
    total = torch.zeros_like(t)
    for coefficient in monomials[::-1]:
        total = total * t + float(coefficient)
    return total


def continued(degree, x, low, high):
    """The polynomial between the bounds, its tangent outside."""
    inside = torch.clamp(x, low, high)
    return polynomial(degree, 0, inside) + polynomial(degree, 1, inside) * (x - inside)


def rectifier(s):
    return torch.logaddexp(torch.zeros_like(s), s * math.log(2.0)) / math.log(2.0)


def component(terms, coefficients, inputs, own, bounds):
    """S and dS/dx_k of one component at every row of inputs = (y, x)."""
    low, high = bounds[own]
    x = inputs[:, own]
    stems = []
    for term in terms:
        stem = torch.ones_like(x)
        for column, degree in term:
            if column != own:
                stem = stem * continued(degree, inputs[:, column], *bounds[column])
        stems.append(stem)
    degrees = [dict(term).get(own, 0) for term in terms]

    def slope(t):
        inside = torch.clamp(t, low, high)
        total = torch.zeros_like(t)
        for c, stem, degree in zip(coefficients, stems, degrees):
            # t has a column for each node.
            total = total + c * stem.reshape(-1, *[1] * (t.dim() - 1)) * polynomial(degree, 1, inside)
        return rectifier(total)

    def piece(start, end):
        t = start[:, None] + (end - start)[:, None] * 0.5 * (NODES + 1.0)
        return (slope(t) * WEIGHTS).sum(1) * 0.5 * (end - start)

    zero = torch.zeros_like(x)
    first, last = torch.clamp(zero, low, high), torch.clamp(x, low, high)
    origin = sum(c * stem * continued(d, zero, low, high) for c, stem, d in zip(coefficients, stems, degrees))
    # Cut into short pieces, so that a rule of 80 nodes leaves nothing but rounding.
    cuts = [first + (last - first) * part / 4.0 for part in range(5)]
    integral = sum(piece(a, b) for a, b in zip(cuts, cuts[1:])) + piece(zero, first) + piece(last, x)
    return origin + integral, slope(x)


def numbers(values):
    return torch.as_tensor(values).detach().tolist()


def compute(n, m, cases, bounds, coefficients, x, y):
    """The values of a fixture."""
    x = torch.tensor(x).requires_grad_()
    inputs = torch.cat([torch.tensor(y).reshape(len(x), m), x], 1)
    coefficients = [torch.tensor(c).requires_grad_() for c in coefficients]
    parts = [component(terms, c, inputs, m + k, bounds) for k, (terms, c) in enumerate(zip(cases, coefficients))]
    z = torch.stack([s for s, _ in parts], 1)
    log_slopes = torch.stack([slope.log() for _, slope in parts], 1)
    density = -0.5 * (z * z).sum(1) + log_slopes.sum(1) - 0.5 * n * math.log(2.0 * math.pi)
    (gradient_x,) = torch.autograd.grad(density.sum(), x, retain_graph=True)
    losses, gradients = [], {}
    for k, (s, slope) in enumerate(parts):
        moved = s + EPSILON * x[:, k]
        loss = (0.5 * moved * moved - (slope + EPSILON).log()).mean() + 0.5 * math.log(2.0 * math.pi)
        losses.append(float(loss.detach()))
        (gradient,) = torch.autograd.grad(loss, coefficients[k], retain_graph=True)
        gradients[f"c.{k + 1}"] = numbers(gradient)
    return {
        "z": numbers(z),
        "log_slopes": numbers(log_slopes),
        "log_det": numbers(log_slopes.sum(1)),
        "log_density": numbers(density),
        "gradient_x": numbers(gradient_x),
        "losses": losses,
        "gradients": gradients,
    }


def fixture(case, seed):
    name, n, m, rows, cases = case
    rng = np.random.default_rng(seed)
    single = lambda values: np.asarray(values, dtype=np.float32).astype(float)  # training sees single precision
    x, y = single(1.3 * rng.standard_normal((rows, n))), single(1.3 * rng.standard_normal((rows, m)))
    low, high = single(-0.6 - rng.random(n + m)), single(0.6 + rng.random(n + m))
    # The last column's bounds leave 0 out.
    low[-1] = single(0.25)
    coefficients = [(0.7 * rng.standard_normal(len(terms))).tolist() for terms in cases]
    bounds = list(zip(low.tolist(), high.tolist()))
    params = {
        "sizes": [[len(terms), sum(map(len, terms))] for terms in cases],
        "quantiles": [list(pair) for pair in bounds],
    }
    for k, terms in enumerate(cases):
        params[f"c.{k + 1}"] = coefficients[k]
        pairs = [[place, column, degree] for place, term in enumerate(terms) for column, degree in term]
        if pairs:
            params[f"alpha.{k + 1}"] = pairs
    values = compute(n, m, cases, bounds, coefficients, x.tolist(), y.tolist())
    return name, {"kind": "atm", "n": n, "m": m, "params": params, "x": x.tolist(), "y": y.tolist(), **values}


def again(stored):
    """The values of a stored fixture, computed anew from its parameters and points."""
    n, m, params = stored["n"], stored["m"], stored["params"]
    cases = []
    for k in range(n):
        terms = [[] for _ in params[f"c.{k + 1}"]]
        for place, column, degree in params.get(f"alpha.{k + 1}", []):
            terms[place].append((column, degree))
        cases.append(terms)
    coefficients = [params[f"c.{k + 1}"] for k in range(n)]
    return compute(n, m, cases, params["quantiles"], coefficients, stored["x"], stored["y"])


def flat(value):
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in flat(value[key])]
    if isinstance(value, list):
        return [number for part in value for number in flat(part)]
    return [value]


def check():
    paths = sorted(COMMITTED.glob("atm_*.json"))
    if not paths:
        sys.exit(f"no atm fixture in {COMMITTED}")
    for path in paths:
        stored = json.loads(path.read_text())
        for key, value in again(stored).items():
            got, expected = np.array(flat(value)), np.array(flat(stored[key]))
            error = np.abs(got - expected).max() / np.abs(expected).max()
            if not error <= TOLERANCE:
                sys.exit(f"{path.name}: {key} differs by {error:.1e}")
        print(f"{path.name}: agrees")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    if arguments.folder is None:
        parser.error("name a folder, or --check")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for place, case in enumerate(CASES):
        name, values = fixture(case, 100 * arguments.seed + place)
        (arguments.folder / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")
        print(f"{name}.json: written")


if __name__ == "__main__":
    main()
