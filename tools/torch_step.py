#!/usr/bin/env python3
"""Seconds per training step in PyTorch, one JSON line per configuration: the other side of benches/training_step.rs.

usage: torch_step.py [CONFIG ...] [--threads 2] [--steps N]
       torch_step.py --check        compares loss and gradients with the golden values instead (double precision)
needs: pip install torch numpy

A step is loss, gradient, Adam and projection, in single precision, with the sizes of the Rust bench. What a PyTorch user
would write: automatic differentiation for every gradient; for PCP-Map forward-over-reverse Hessians under vmap with a
Cholesky factor for the log-determinant, for COT-Flow the closed Laplacian inside the Runge–Kutta steps, for the flows of
NPE what nflows does. Formulas and names of tensors are those of docs/methods.md. "gflops" counts the matrix products that our step needs, as the Rust
bench does, not those that PyTorch carries out: the same work over the time taken. Run both programs in turn on an idle machine.
"""
import argparse
import json
import math
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    sys.exit("torch_step.py needs PyTorch: pip install torch numpy")
from torch.func import grad, jacfwd, vmap
from torch.nn.functional import elu, linear, pad, relu, softplus

FIXTURES = Path(__file__).resolve().parent.parent / "crates/brenier/tests/fixtures"
LOG_TWO_PI = math.log(2.0 * math.pi)


def uniform(*shape):
    """Weights and biases U(±1/√fan-in); a bias counts as one row of its layer."""
    return (2.0 * torch.rand(*shape) - 1.0) / math.sqrt(shape[-1])


class Pcp:
    """The gradient of a potential that is convex in x."""

    def __init__(self, target, given, width, depth, output="identity"):
        self.target, self.given, self.width, self.depth, self.output = target, given, width, depth, output
        self.tensors = {"gamma": torch.tensor([0.0, 0.1, 0.1])}

    def initialise(self):
        n, width = self.target, self.width
        for k in range(self.depth + 1):
            context, features = (self.given, n) if k == 0 else (width, width)
            outputs = width if k < self.depth else 1
            layer = {
                "Lw": (outputs, features),
                "Lvw": (outputs, context),
                "bw": (outputs,),
                "Lwv": (features, context),
                "bwv": (features,),
            }
            if k > 0:
                layer |= {"Lx": (outputs, n), "Lxv": (n, context), "bxv": (n,)}
            if k < self.depth:
                layer |= {"Lv": (width, context), "bv": (width,)}
            self.tensors |= {f"{name}.{k}": uniform(*shape) for name, shape in layer.items()}
        # Non-negative and of a scale that keeps the features' size from layer to layer.
        for name, tensor in self.tensors.items():
            if name.startswith("Lw."):
                self.tensors[name] = tensor.abs() / math.sqrt(tensor.shape[1])

    def potential(self, x, y):
        """G(x; y) of one row."""
        p = self.tensors
        w, v = x, y
        for k in range(self.depth + 1):
            s = p[f"Lw.{k}"] @ (relu(p[f"Lwv.{k}"] @ v + p[f"bwv.{k}"]) * w) + p[f"Lvw.{k}"] @ v + p[f"bw.{k}"]
            if k > 0:
                s = s + p[f"Lx.{k}"] @ ((p[f"Lxv.{k}"] @ v + p[f"bxv.{k}"]) * x)
            if k < self.depth:
                w, v = softplus(s), elu(p[f"Lv.{k}"] @ v + p[f"bv.{k}"])
        network = softplus(s) if self.output == "softplus" else s
        gamma = p["gamma"]
        return softplus(gamma[0]) * network[0] + 0.5 * (relu(gamma[1]) + softplus(gamma[2])) * (x @ x)

    def loss(self, x, y):
        def map_twice(x, y):
            z = grad(self.potential)(x, y)
            return z, z

        hessian, z = vmap(jacfwd(map_twice, has_aux=True))(x, y)
        diagonal = torch.linalg.cholesky(hessian).diagonal(dim1=-2, dim2=-1)
        return (0.5 * z.square().sum(1) - 2.0 * diagonal.log().sum(1)).mean() + 0.5 * self.target * LOG_TWO_PI

    def project(self):
        for name, tensor in self.tensors.items():
            if name.startswith("Lw."):
                tensor.clamp_(min=0.0)

    def products(self):
        """Multiplications of one row in the matrix products of our step."""
        n, w = self.target, self.width
        total = self.depth * w * n * (n + 1) // 2 + self.depth * w * n * n
        for k in range(self.depth + 1):
            hidden = k < self.depth
            rows = (w if hidden else 0) + (w if k > 0 else 0) + n + (w if hidden else 1)
            total += rows * self.given * 2 if k == 0 else rows * w * 3
            if 0 < k < self.depth:
                total += w * w * 3 * (n + 2)
        return total


class Cot:
    """The end of a flow along the gradient of a potential Φ(t, x; y); two layers, as in the paper."""

    def __init__(self, target, given, width, time_steps, embedding=(), alphas=(0.01, 0.1)):
        self.target, self.given, self.width, self.time_steps = target, given, width, time_steps
        self.embedding, self.alphas, self.tensors = embedding, alphas, {}

    def initialise(self):
        features = self.embedding[-1] if self.embedding else self.given
        q, width = 1 + self.target + features, self.width
        self.tensors = {
            "A0": uniform(width, q),
            "b0": uniform(width),
            "A1": uniform(width, width),
            "b1": uniform(width),
            "a": torch.ones(width),
            "A": uniform(q, min(10, q)),
            "b": torch.zeros(q),
        }
        inputs = self.given
        for layer, outputs in enumerate(self.embedding, 1):
            self.tensors |= {f"E{layer}": uniform(outputs, inputs), f"d{layer}": uniform(outputs)}
            inputs = outputs

    def embed(self, y):
        for layer in range(1, len(self.embedding) + 1):
            y = y @ self.tensors[f"E{layer}"].T + self.tensors[f"d{layer}"]
            if layer < len(self.embedding):
                y = torch.tanh(y)
        return y

    def rates(self, t, x, y):
        """Time derivatives of (x, log det, transport cost, HJB cost)."""
        p, n = self.tensors, self.target
        q = torch.cat([torch.full_like(x[:, :1], t), x, y], dim=1)
        opening = q @ p["A0"].T + p["b0"]
        first = torch.tanh(opening)
        size = opening.abs()
        second = torch.tanh((size + torch.log1p(torch.exp(-2.0 * size))) @ p["A1"].T + p["b1"])
        back = p["a"] + (second * p["a"]) @ p["A1"]
        gradient = (first * back) @ p["A0"] + (q @ p["A"]) @ p["A"].T + p["b"]
        # The rows' Jacobians of the first layer in x, one below the other: one product for the whole batch.
        columns = p["A0"][:, 1 : 1 + n].T
        jacobians = (first[:, None, :] * columns) @ p["A1"].T
        laplacian = (
            ((1.0 - first.square()) * back) @ columns.square().sum(0)
            + ((1.0 - second.square()) * p["a"] * jacobians.square().sum(1)).sum(1)
            + p["A"][1 : 1 + n].square().sum()
        )
        velocity = gradient[:, 1 : 1 + n]
        speed = 0.5 * velocity.square().sum(1)
        return -velocity, -laplacian, speed, (speed - gradient[:, 0]).abs()

    def loss(self, x, y):
        y = self.embed(y)
        h = 1.0 / self.time_steps
        sums = [0.0, 0.0, 0.0]
        for i in range(self.time_steps):
            t, moved, slope = i * h, 0.0, None
            # Where each stage is evaluated, and its weight.
            for part, weight in ((0.0, 1.0), (0.5, 2.0), (0.5, 2.0), (1.0, 1.0)):
                start = x if slope is None else x + part * h * slope
                slope, *others = self.rates(t + part * h, start, y)
                moved = moved + weight * h / 6.0 * slope
                sums = [total + weight * h / 6.0 * rate for total, rate in zip(sums, others)]
            x = x + moved
        log_det, transport, hjb = sums
        rows = 0.5 * x.square().sum(1) - log_det + self.alphas[0] * transport + self.alphas[1] * hjb
        return rows.mean() + 0.5 * self.target * LOG_TWO_PI

    def project(self):
        for name in ("A0", "b0", "A1", "b1", "a"):
            self.tensors[name].clamp_(-1.5, 1.5)

    def products(self):
        """Multiplications of one row in the matrix products of our step."""
        features = self.embedding[-1] if self.embedding else self.given
        widths = [self.given, *self.embedding]
        layers = zip(widths[:-1], widths[1:])
        embedding = sum(i * o * (2 if layer == 0 else 3) for layer, (i, o) in enumerate(layers))
        opening = (3 if self.embedding else 2) * self.width * features
        return 4 * self.time_steps * self.width**2 * (3 * self.target + 6) + opening + embedding


class Maf:
    """Masked affine autoregressive transforms, each followed by a permutation."""

    def __init__(self, target, given, width, transforms=5, blocks=2):
        self.target, self.given, self.width, self.transforms, self.blocks = target, given, width, transforms, blocks
        self.tensors, self.permutations = {}, [torch.randperm(target) for _ in range(transforms)]
        inputs = torch.arange(1, target + 1)
        units = (torch.arange(width) % max(target - 1, 1) + min(1, target - 1)).sort().values
        hidden, outputs = units[:, None] >= units, torch.cat([inputs, inputs])[:, None] > units
        self.masks = [units[:, None] >= inputs] + [hidden] * blocks + [outputs]

    def initialise(self):
        sizes = [self.target] + [self.width] * (self.blocks + 1) + [2 * self.target]
        for t in range(self.transforms):
            for layer, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
                self.tensors |= {f"W{layer}.{t}": uniform(outputs, inputs), f"b{layer}.{t}": uniform(outputs)}
            self.tensors |= {f"C0.{t}": uniform(self.width, self.given), f"c0.{t}": uniform(self.width)}

    def loss(self, x, y):
        p, n, total = self.tensors, self.target, 0.0
        masks = [mask.to(x.dtype) for mask in self.masks]
        for t in range(self.transforms):
            hidden = linear(x, p[f"W0.{t}"] * masks[0], p[f"b0.{t}"])
            hidden = torch.tanh(hidden + torch.tanh(linear(y, p[f"C0.{t}"], p[f"c0.{t}"])))
            for layer in range(1, self.blocks + 1):
                hidden = torch.tanh(linear(hidden, p[f"W{layer}.{t}"] * masks[layer], p[f"b{layer}.{t}"]))
            last = self.blocks + 1
            raw, shift = linear(hidden, p[f"W{last}.{t}"] * masks[last], p[f"b{last}.{t}"]).split(n, dim=1)
            scale = softplus(raw) + 1e-3
            x = (scale * x + shift)[:, self.permutations[t]]
            total = total + scale.log().sum(1)
        return (0.5 * x.square().sum(1) - total).mean() + 0.5 * n * LOG_TWO_PI

    def project(self):
        pass

    def products(self):
        """Multiplications of one row by unmasked weights in our step."""
        return self.transforms * (3 * int(sum(mask.sum() for mask in self.masks)) + 2 * self.given * self.width)


class Nsf:
    """Couplings of rational-quadratic splines, each followed by a linear layer."""

    def __init__(self, target, given, width, transforms=5, blocks=2, bins=10, bound=3.0):
        self.target, self.given, self.width, self.transforms, self.blocks = target, given, width, transforms, blocks
        self.bins, self.bound, self.tensors = bins, bound, {}

    def initialise(self):
        n, width = self.target, self.width
        for t in range(self.transforms):
            moved = len(range(t % 2, n, 2))
            for layer in range(1, 2 * self.blocks + 1):
                self.tensors |= {f"W{layer}.{t}": uniform(width, width), f"b{layer}.{t}": uniform(width)}
            outputs, triangle = (3 * self.bins - 1) * moved, n * (n - 1) // 2
            self.tensors |= {f"P.{t}": uniform(outputs, width), f"p.{t}": uniform(outputs)}
            self.tensors |= {f"L.{t}": torch.zeros(triangle), f"U.{t}": torch.zeros(triangle)}
            self.tensors |= {f"d.{t}": torch.full((n,), math.log(math.expm1(1 - 1e-3))), f"e.{t}": torch.zeros(n)}
            self.tensors[f"W0.{t}"] = uniform(width, n - moved)
            for slot in range(self.blocks + 1):
                self.tensors |= {f"C{slot}.{t}": uniform(width, self.given), f"c{slot}.{t}": uniform(width)}

    def spline(self, raw, x):
        """Values and log slopes; raw has 3K − 1 numbers for every x."""
        bins, bound, least = self.bins, self.bound, 1e-3

        def knots(logits):
            parts = least + (1 - least * bins) * torch.softmax(logits / math.sqrt(self.width), dim=-1)
            ends = pad(torch.cumsum(parts, dim=-1), (1, 0)) * 2 * bound - bound
            return ends, ends[..., 1:] - ends[..., :-1]

        inside = x.abs() <= bound
        point = x.clamp(-bound, bound)
        (across, widths), (up, heights) = knots(raw[..., :bins]), knots(raw[..., bins : 2 * bins])
        slopes = pad(softplus(raw[..., 2 * bins :]) + least, (1, 1), value=1.0)
        place = (point[..., None] >= across[..., 1:-1]).sum(-1, keepdim=True)
        pick = lambda values, at: values.gather(-1, at)[..., 0]
        w, h, left, floor = (pick(values, place) for values in (widths, heights, across, up))
        low, high = pick(slopes, place), pick(slopes, place + 1)
        theta, secant = (point - left) / w, h / w
        q = theta * (1 - theta)
        denominator = secant + (low + high - 2 * secant) * q
        value = floor + h * (secant * theta.square() + low * q) / denominator
        steep = secant.square() * (high * theta.square() + 2 * secant * q + low * (1 - theta).square())
        log = steep.log() - 2 * denominator.log()
        return torch.where(inside, value, x), torch.where(inside, log, torch.zeros_like(log))

    def triangles(self, t):
        n, p = self.target, self.tensors
        columns, rows = torch.triu_indices(n, n, 1)
        lower = torch.eye(n, dtype=p[f"L.{t}"].dtype).index_put((rows, columns), p[f"L.{t}"])
        # U by columns: (0, 1), (0, 2), (1, 2), …
        rows, columns = torch.tensor([(i, j) for j in range(n) for i in range(j)]).T
        diagonal = softplus(p[f"d.{t}"]) + 1e-3
        upper = torch.diag(diagonal).index_put((rows, columns), p[f"U.{t}"])
        return lower, upper, diagonal.log().sum()

    def loss(self, x, y):
        p, n, total = self.tensors, self.target, 0.0
        for t in range(self.transforms):
            moved, kept = x[:, t % 2 :: 2], x[:, 1 - t % 2 :: 2]
            hidden = linear(kept, p[f"W0.{t}"]) + linear(y, p[f"C0.{t}"], p[f"c0.{t}"])
            for block in range(1, self.blocks + 1):
                first, second = 2 * block - 1, 2 * block
                inner = linear(relu(hidden), p[f"W{first}.{t}"], p[f"b{first}.{t}"])
                inner = linear(relu(inner), p[f"W{second}.{t}"], p[f"b{second}.{t}"])
                hidden = hidden + inner * torch.sigmoid(linear(y, p[f"C{block}.{t}"], p[f"c{block}.{t}"]))
            raw = linear(hidden, p[f"P.{t}"], p[f"p.{t}"]).view(len(x), moved.shape[1], -1)
            moved, log = self.spline(raw, moved)
            both = (moved, kept) if t % 2 == 0 else (kept, moved)
            z = torch.empty_like(x)
            z[:, 0::2], z[:, 1::2] = both
            lower, upper, log_diagonal = self.triangles(t)
            x = linear(linear(z, upper), lower, p[f"e.{t}"])
            total = total + log.sum(1) + log_diagonal
        return (0.5 * x.square().sum(1) - total).mean() + 0.5 * n * LOG_TWO_PI

    def project(self):
        pass

    def products(self):
        """Multiplications of one row in the matrix products of our step."""
        n, h, total = self.target, self.width, 0
        for t in range(self.transforms):
            moved = len(range(t % 2, n, 2))
            network = (n - moved) * h + 2 * self.blocks * h * h + (3 * self.bins - 1) * moved * h
            total += 3 * (network + n * n) + 2 * self.given * h * (self.blocks + 1)
        return total


# The names and sizes of benches/training_step.rs: the map, and the rows of a batch.
CONFIGS = {
    "pcp_concrete": (Pcp(1, 8, 128, 3), 32),
    "pcp_wide": (Pcp(1, 8, 512, 3), 32),
    "pcp_lv": (Pcp(4, 9, 128, 2), 256),
    "pcp_joint": (Pcp(8, 7, 256, 3), 64),
    "pcp_swe": (Pcp(14, 3500, 256, 3), 64),
    "pcp_swe_full": (Pcp(100, 3500, 512, 5), 64),
    "cot_concrete": (Cot(1, 8, 256, 8), 64),
    "cot_lv": (Cot(4, 9, 128, 8), 256),
    "cot_swe": (Cot(14, 3500, 512, 8, (128, 128, 64)), 256),
    "npe_maf_50": (Maf(4, 9, 50), 256),
    "npe_maf_100": (Maf(4, 9, 100), 256),
    "npe_nsf_50": (Nsf(4, 9, 50), 256),
    "npe_nsf_100": (Nsf(4, 9, 100), 256),
}


def measure(model, batch, steps):
    """Sorted seconds of single steps, for as long as the Rust bench measures."""
    model.initialise()
    parameters = [tensor.requires_grad_() for tensor in model.tensors.values()]
    adam = torch.optim.Adam(parameters, lr=1e-3)
    x, y = torch.randn(batch, model.target), torch.randn(batch, model.given)

    def step():
        start = time.perf_counter()
        adam.zero_grad()
        model.loss(x, y).backward()
        adam.step()
        with torch.no_grad():
            model.project()
        return time.perf_counter() - start

    warm, times = 0.0, []
    while warm < 0.3:
        warm += step()
    total = 0.0
    while len(times) < steps or (steps == 0 and (total < 3.0 or len(times) < 5 or (len(times) < 20 and total < 10.0))):
        times.append(step())
        total += times[-1]
    return sorted(times)


def product_peak():
    """GFLOP/s of one 512³ single-precision product on all threads."""
    a = torch.randn(512, 512)
    best = math.inf
    for _ in range(60):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2.0 * 512**3 / best / 1e9


def check():
    """Loss and gradients of all methods against the golden values."""
    torch.set_default_dtype(torch.float64)
    for path in sorted(FIXTURES.glob("*.json")):
        fixture = json.loads(path.read_text())
        n, m = fixture.get("n"), fixture.get("m")
        if fixture["kind"] == "pcp_map":
            # The tensors are given, so that the width matters nowhere.
            model = Pcp(n, m, 0, fixture["depth"], fixture["output_activation"])
            expected, gradients = fixture["mean_nll"], fixture["grad_mean_nll"]
        elif fixture["kind"] == "cot_flow":
            alphas = (fixture["alpha_transport"], fixture["alpha_hjb"])
            model = Cot(n, m, fixture["width"], fixture["time_steps"], alphas=alphas)
            expected, gradients = fixture["objective"], fixture["grad_objective"]
        elif fixture["kind"] == "npe" and n > 1 and "embedding" not in fixture:
            sizes = (n, m, fixture["hidden_width"], fixture["transforms"], fixture["blocks"])
            if fixture["flow"] == "maf":
                model = Maf(*sizes)
                model.permutations = [torch.tensor(order) for order in fixture["permutations"]]
            else:
                model = Nsf(*sizes, fixture["bins"], fixture["tail_bound"])
            expected, gradients = fixture["mean_nll"], fixture["grad_mean_nll"]
        else:
            continue
        model.tensors = {name: torch.tensor(values).requires_grad_() for name, values in fixture["params"].items()}
        loss = model.loss(torch.tensor(fixture["x"]), torch.tensor(fixture["y"]))
        loss.backward()
        worst = abs(loss.item() - expected) / abs(expected)
        for name, tensor in model.tensors.items():
            got = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
            golden = torch.zeros_like(tensor) if gradients[name] is None else torch.tensor(gradients[name])
            worst = max(worst, ((got - golden).abs().max() / golden.abs().max().clamp(min=1e-300)).item())
        print(f"{path.name}: largest difference {worst:.1e}")
        if not worst <= 1e-10:
            sys.exit(f"{path.name}: loss or gradients differ by more than 1e-10")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"some of {', '.join(CONFIGS)}; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="steps to time; 0 means about three seconds, at least five steps")
    parser.add_argument("--check", action="store_true", help="compare with the golden values instead of timing")
    options = parser.parse_args()
    unknown = [name for name in options.configs if name not in CONFIGS]
    if unknown:
        parser.error(f"unknown configuration {unknown[0]}; known are {', '.join(CONFIGS)}")
    torch.set_num_threads(options.threads)
    if options.check:
        return check()
    torch.manual_seed(0)
    peak = product_peak()
    for name in options.configs or CONFIGS:
        model, batch = CONFIGS[name]
        times = measure(model, batch, options.steps)
        median = times[len(times) // 2]
        line = {
            "config": name,
            "median_s": round(median, 6),
            "min_s": round(times[0], 6),
            "steps": len(times),
            "threads": options.threads,
            "gflops": round(2.0 * model.products() * batch / median / 1e9, 1),
            "gemm_peak_gflops": round(peak, 1),
        }
        print(json.dumps(line), flush=True)
        model.tensors.clear()


if __name__ == "__main__":
    main()
