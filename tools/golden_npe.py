#!/usr/bin/env python3
"""Golden values of the flows of `--method npe`, from the formulas in docs/methods.md with NumPy alone.

usage: golden_npe.py FOLDER [--seed 0]    draws parameters and points for the sizes below and writes npe_*.json
needs: pip install numpy

`golden.py` knows the same fixtures (kind "npe"): it computes them anew from their parameters, checks them, or draws others.
Every derivative is a complex step; branches look at the real part.
"""
import argparse
import json
import math
import sys
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("golden_npe.py needs NumPy: pip install numpy")

LEAST = 1e-3
STEP = 1e-30

# n, m, kind, transforms, width, blocks, bins, tail bound, embedding, permutations (those of permutation_seed 0).
SIZES = {
    "npe_maf_1": dict(n=1, m=2, flow="maf", transforms=2, hidden_width=4, blocks=2, permutations=[[0], [0]]),
    "npe_maf_3": dict(n=3, m=2, flow="maf", transforms=3, hidden_width=6, blocks=2, permutations=[[2, 0, 1]] * 3),
    "npe_maf_4": dict(n=4, m=2, flow="maf", transforms=2, hidden_width=7, blocks=1, embedding=[3, 2],
                      permutations=[[2, 0, 3, 1], [2, 0, 1, 3]]),
    "npe_nsf_1": dict(n=1, m=2, flow="nsf", transforms=2, hidden_width=4, blocks=2, bins=5, tail_bound=3.0),
    "npe_nsf_3": dict(n=3, m=2, flow="nsf", transforms=3, hidden_width=4, blocks=2, bins=4, tail_bound=2.0),
    "npe_nsf_4": dict(n=4, m=2, flow="nsf", transforms=2, hidden_width=5, blocks=1, bins=3, tail_bound=2.5,
                      embedding=[3, 2]),
}


def softplus(s):
    positive = s.real > 0
    return np.where(positive, s, 0.0) + np.log1p(np.exp(np.where(positive, -s, s)))


def logistic(s):
    positive = s.real > 0
    decay = np.exp(np.where(positive, -s, s))
    return np.where(positive, 1.0, decay) / (1.0 + decay)


def relu(s):
    return np.where(s.real > 0, s, 0.0)


def embed(p, y, widths):
    """tanh layers, the last one linear."""
    for layer in range(1, len(widths) + 1):
        y = y @ p[f"E{layer}"].T + p[f"d{layer}"]
        if layer < len(widths):
            y = np.tanh(y)
    return y


# Masked autoregressive flow.

def masks(n, width, blocks):
    """Of every layer: 1 where a weight may differ from zero. Units are sorted by degree; outputs are (a, m)."""
    inputs = np.arange(1, n + 1)
    if n == 1:
        units = np.zeros(width, dtype=int)
    else:
        units = np.sort(np.arange(width) % (n - 1) + 1)
    outputs = np.concatenate([inputs, inputs])
    first = units[:, None] >= inputs[None]
    hidden = units[:, None] >= units[None]
    last = outputs[:, None] > units[None]
    return [first] + [hidden] * blocks + [last]


def maf(p, x, y, inputs):
    n, blocks = inputs["n"], inputs["blocks"]
    mask = masks(n, inputs["hidden_width"], blocks)
    log_det = 0.0
    for t in range(inputs["transforms"]):
        context = np.tanh(y @ p[f"C0.{t}"].T + p[f"c0.{t}"])
        hidden = np.tanh(x @ (p[f"W0.{t}"] * mask[0]).T + p[f"b0.{t}"] + context)
        for layer in range(1, blocks + 1):
            hidden = np.tanh(hidden @ (p[f"W{layer}.{t}"] * mask[layer]).T + p[f"b{layer}.{t}"])
        last = blocks + 1
        outputs = hidden @ (p[f"W{last}.{t}"] * mask[last]).T + p[f"b{last}.{t}"]
        scale = softplus(outputs[:, :n]) + LEAST
        x = (scale * x + outputs[:, n:])[:, inputs["permutations"][t]]
        log_det = log_det + np.log(scale).sum(axis=1)
    return x, log_det


# Neural spline flow.

def spline(raw, x, bins, bound, width):
    """Value and log slope of every row's spline at x."""
    def sizes(logits):
        logits = logits / math.sqrt(width)
        parts = np.exp(logits - logits.real.max(axis=1, keepdims=True))
        parts = LEAST + (1.0 - LEAST * bins) * parts / parts.sum(axis=1, keepdims=True)
        return 2.0 * bound * parts

    widths, heights = sizes(raw[:, :bins]), sizes(raw[:, bins : 2 * bins])
    ones = np.ones((len(x), 1))
    slopes = np.concatenate([ones, softplus(raw[:, 2 * bins :]) + LEAST, ones], axis=1)
    values, logs = [], []
    for row in range(len(x)):
        if abs(x[row].real) > bound:
            values.append(x[row])
            logs.append(0.0)
            continue
        knots = -bound + np.concatenate([[0.0], np.cumsum(widths[row])])
        floors = -bound + np.concatenate([[0.0], np.cumsum(heights[row])])
        k = max(j for j in range(bins) if j == 0 or x[row].real >= knots[j].real)
        w, h, low, high = widths[row, k], heights[row, k], slopes[row, k], slopes[row, k + 1]
        theta, secant = (x[row] - knots[k]) / w, h / w
        q = theta * (1.0 - theta)
        denominator = secant + (low + high - 2.0 * secant) * q
        values.append(floors[k] + h * (secant * theta**2 + low * q) / denominator)
        steep = secant**2 * (high * theta**2 + 2.0 * secant * q + low * (1.0 - theta) ** 2)
        logs.append(np.log(steep) - 2.0 * np.log(denominator))
    return np.array(values), np.array(logs)


def triangles(p, t, n):
    """L and U of a linear layer, whose entries off the diagonal stand column by column."""
    lower, upper = np.eye(n, dtype=complex), np.zeros((n, n), dtype=complex)
    below = [(i, j) for j in range(n) for i in range(j + 1, n)]
    above = [(i, j) for j in range(n) for i in range(j)]
    for (i, j), value in zip(below, p[f"L.{t}"]):
        lower[i, j] = value
    for (i, j), value in zip(above, p[f"U.{t}"]):
        upper[i, j] = value
    diagonal = softplus(p[f"d.{t}"]) + LEAST
    upper[np.arange(n), np.arange(n)] = diagonal
    return lower, upper, np.log(diagonal).sum()


def nsf(p, x, y, inputs):
    n, blocks, bins, width = inputs["n"], inputs["blocks"], inputs["bins"], inputs["hidden_width"]
    numbers, log_det = 3 * bins - 1, 0.0
    for t in range(inputs["transforms"]):
        opening = y @ p[f"C0.{t}"].T + p[f"c0.{t}"]
        if n == 1:
            hidden = relu(opening)
            for layer in range(1, blocks):
                hidden = relu(hidden @ p[f"W{layer}.{t}"].T + p[f"b{layer}.{t}"])
            moved = [0]
        else:
            moved = list(range(t % 2, n, 2))
            hidden = x[:, 1 - t % 2 :: 2] @ p[f"W0.{t}"].T + opening
            for block in range(1, blocks + 1):
                inner = relu(relu(hidden) @ p[f"W{2 * block - 1}.{t}"].T + p[f"b{2 * block - 1}.{t}"])
                inner = inner @ p[f"W{2 * block}.{t}"].T + p[f"b{2 * block}.{t}"]
                hidden = hidden + inner * logistic(y @ p[f"C{block}.{t}"].T + p[f"c{block}.{t}"])
        raw = hidden @ p[f"P.{t}"].T + p[f"p.{t}"]
        columns = list(x.T)
        for place, column in enumerate(moved):
            part = raw[:, place * numbers : (place + 1) * numbers]
            columns[column], log = spline(part, x[:, column], bins, inputs["tail_bound"], width)
            log_det = log_det + log
        x = np.stack(columns, axis=1)
        if n > 1:
            lower, upper, log = triangles(p, t, n)
            x = x @ (lower @ upper).T + p[f"e.{t}"]
            log_det = log_det + log
    return x, log_det


def evaluate(p, x, y, inputs):
    """z, log-determinant and log density of every row."""
    features = embed(p, y, inputs.get("embedding", []))
    z, log_det = {"maf": maf, "nsf": nsf}[inputs["flow"]](p, x, features, inputs)
    return z, log_det, log_det - 0.5 * (z * z).sum(axis=1) - 0.5 * inputs["n"] * math.log(2.0 * math.pi)


def complex_step(function, tensors):
    gradients = {}
    for name, tensor in tensors.items():
        gradient = np.zeros(tensor.shape)
        for index in np.ndindex(tensor.shape):
            moved = tensor.astype(complex)
            moved[index] += 1j * STEP
            gradient[index] = function({**tensors, name: moved}).imag / STEP
        gradients[name] = gradient if np.any(gradient) else None
    return gradients


def npe(inputs):
    """Everything that a fixture holds beside its parameters and points."""
    tensors = {**inputs["params"], "x": inputs["x"]}

    def at(moved):
        return evaluate(moved, moved["x"], inputs["y"], inputs)

    z, log_det, log_density = (value.real for value in at(tensors))
    return {
        "z": z,
        "log_det": log_det,
        "log_density": log_density,
        "mean_nll": -log_density.mean(),
        "grad_mean_nll": complex_step(lambda moved: -at(moved)[2].mean(), tensors),
    }


def shapes(inputs):
    """Name and shape of every tensor."""
    n, width, blocks = inputs["n"], inputs["hidden_width"], inputs["blocks"]
    widths = inputs.get("embedding", [])
    features = widths[-1] if widths else inputs["m"]
    tensors = {}
    for t in range(inputs["transforms"]):
        slots = 1
        if inputs["flow"] == "maf":
            sizes = [n] + [width] * (blocks + 1) + [2 * n]
            for layer, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:])):
                tensors |= {f"W{layer}.{t}": (fan_out, fan_in), f"b{layer}.{t}": (fan_out,)}
        else:
            moved = 1 if n == 1 else len(range(t % 2, n, 2))
            layers = blocks - 1 if n == 1 else 2 * blocks
            for layer in range(1, layers + 1):
                tensors |= {f"W{layer}.{t}": (width, width), f"b{layer}.{t}": (width,)}
            outputs = (3 * inputs["bins"] - 1) * moved
            tensors |= {f"P.{t}": (outputs, width), f"p.{t}": (outputs,)}
            if n > 1:
                slots, triangle = 1 + blocks, (n * (n - 1) // 2,)
                tensors |= {f"L.{t}": triangle, f"U.{t}": triangle, f"d.{t}": (n,), f"e.{t}": (n,)}
                tensors[f"W0.{t}"] = (width, n - moved)
        for slot in range(slots):
            tensors |= {f"C{slot}.{t}": (width, features), f"c{slot}.{t}": (width,)}
    fan_in = inputs["m"]
    for layer, fan_out in enumerate(widths, 1):
        tensors |= {f"E{layer}": (fan_out, fan_in), f"d{layer}": (fan_out,)}
        fan_in = fan_out
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the fixtures")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, sizes in SIZES.items():
        rng = np.random.default_rng([options.seed, *name.encode()])
        params = {key: rng.standard_normal(shape) for key, shape in shapes(sizes).items()}
        rows = 5
        points = {"x": 1.3 * rng.standard_normal((rows, sizes["n"])), "y": rng.standard_normal((rows, sizes["m"]))}
        inputs = {"kind": "npe", **sizes, "params": params, **points}
        fixture = {**inputs, **npe(inputs)}
        text = json.dumps(fixture, default=lambda value: value.tolist())
        options.folder.mkdir(parents=True, exist_ok=True)
        (options.folder / f"{name}.json").write_text(text)
        print(options.folder / f"{name}.json")


if __name__ == "__main__":
    main()
