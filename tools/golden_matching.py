#!/usr/bin/env python3
"""Golden values of flow matching for crates/brenier/tests/fixtures/matching_*.json, by automatic differentiation in PyTorch.

usage: golden_matching.py FOLDER             writes every fixture
       golden_matching.py --seed 7 FOLDER    the same sizes with other random parameters and points
       golden_matching.py --check            compares the committed fixtures with what is computed here, to 1e-10
needs: pip install torch numpy

The formulas and the names of the tensors are those of docs/methods.md, in double precision. Nothing is differentiated by hand:
the divergence is the trace of a Jacobian by forward derivatives, gradients in parameters and points are a backward pass.
"""
import math
import sys

try:
    import torch
except ImportError:
    sys.exit("golden_matching.py needs PyTorch: pip install torch numpy")
from torch.func import jacfwd, vmap

from fixtures import main, plain

# More rows than one shard of a training step.
ROWS = 19
WAVES = 4

# name: target, given, width, blocks, embedding, Runge–Kutta steps
FIXTURES = {
    "matching_n1": (1, 2, 5, 2, [], 5),
    "matching_n3_embedded": (3, 4, 6, 2, [5, 3], 4),
    "matching_n2_free": (2, 0, 5, 1, [], 6),
}


def bend(s):
    """σ(s) = s/(1 + e⁻ˢ)."""
    return s / (1.0 + torch.exp(-s))


class FlowMatching:
    """z = x(1) of dx/dt = v(t, x; y), x(0) = x."""

    def __init__(self, target, given, width, blocks, embedding, steps):
        self.target, self.given, self.width, self.blocks = target, given, width, blocks
        self.embedding, self.steps = embedding, steps
        self.tensors = {}

    def shapes(self):
        """Name and shape of every tensor."""
        n, w = self.target, self.width
        record = (self.blocks + 1) * w
        sizes = [self.given, *self.embedding]
        shapes = {"C": (record, sizes[-1]), "T": (record, 2 * WAVES), "c": (record,), "W": (w, n)}
        for i in range(1, self.blocks + 1):
            shapes |= {f"A{i}": (w, w), f"B{i}": (w, w), f"b{i}": (w,)}
        shapes |= {"V": (n, w), "d": (n,)}
        for layer in range(1, len(sizes)):
            shapes |= {f"E{layer}": (sizes[layer], sizes[layer - 1]), f"d{layer}": (sizes[layer],)}
        return shapes

    def random(self, generator):
        """Parameters far from any start."""
        def draw(shape):
            fan_in = shape[1] if len(shape) == 2 else 4
            return torch.randn(shape, generator=generator) / math.sqrt(max(fan_in, 1))

        self.tensors = {name: draw(shape) for name, shape in self.shapes().items()}

    def time_features(self, t):
        """sin and cos of 2ᵏπt/2, k = 0, 1, 2, 3, in turn."""
        return torch.stack([wave(2.0**k * math.pi * t / 2.0) for k in range(WAVES) for wave in (torch.sin, torch.cos)])

    def embed(self, y):
        """e of one row y."""
        for layer in range(1, len(self.embedding) + 1):
            y = self.tensors[f"E{layer}"] @ y + self.tensors[f"d{layer}"]
            y = torch.tanh(y) if layer < len(self.embedding) else y
        return y

    def field(self, t, x, y):
        """v(t, x; y) of one row."""
        p = self.tensors
        record = p["C"] @ self.embed(y) + p["T"] @ self.time_features(t) + p["c"]
        first, *rest = record.split(self.width)
        h = p["W"] @ x + first
        for i, own in enumerate(rest, 1):
            h = h + p[f"B{i}"] @ bend(p[f"A{i}"] @ bend(h) + own) + p[f"b{i}"]
        return p["V"] @ bend(h) + p["d"]

    def loss(self, x, y, t, noise):
        """Mean of ½‖v(t, x_t; y) − (z − x)‖² at given t and z."""
        moved = (1.0 - t)[:, None] * x + t[:, None] * noise
        miss = vmap(self.field)(t, moved, y) - (noise - x)
        return 0.5 * miss.square().sum(1).mean()

    def rates(self, t, x, y):
        """v and its divergence, of every row."""
        def twice(x, y):
            v = self.field(torch.tensor(t), x, y)
            return v, v

        jacobian, v = vmap(jacfwd(twice, has_aux=True))(x, y)
        return v, jacobian.diagonal(dim1=-2, dim2=-1).sum(1)

    def travel(self, x, y, times):
        """Where classical Runge–Kutta steps between the times lead, and the integral of the divergence."""
        log_det = torch.zeros(len(x))
        for start, end in zip(times[:-1], times[1:]):
            h, middle = end - start, 0.5 * (start + end)
            v1, d1 = self.rates(start, x, y)
            v2, d2 = self.rates(middle, x + 0.5 * h * v1, y)
            v3, d3 = self.rates(middle, x + 0.5 * h * v2, y)
            v4, d4 = self.rates(end, x + h * v3, y)
            x = x + h / 6.0 * (v1 + 2.0 * v2 + 2.0 * v3 + v4)
            log_det = log_det + h / 6.0 * (d1 + 2.0 * d2 + 2.0 * d3 + d4)
        return x, log_det

    def forward(self, x, y):
        """z and log |det ∂z/∂x| of every row."""
        return self.travel(x, y, [(k / self.steps) ** 2 for k in range(self.steps + 1)])

    def draw(self, z, y):
        """x(0) from x(1) = z: the same times in reverse."""
        return self.travel(z, y, [(k / self.steps) ** 2 for k in range(self.steps, -1, -1)])[0]

    def log_density(self, x, y):
        z, log_det = self.forward(x, y)
        return log_det - 0.5 * z.square().sum(1) - 0.5 * self.target * math.log(2.0 * math.pi), z, log_det


def compute(name, seed):
    n, m, width, blocks, embedding, steps = FIXTURES[name]
    model = FlowMatching(n, m, width, blocks, embedding, steps)
    generator = torch.Generator().manual_seed(1000 * seed + sum(name.encode()))
    model.random(generator)
    x, y = torch.randn(ROWS, n, generator=generator), torch.randn(ROWS, m, generator=generator)
    t, noise = torch.rand(ROWS, generator=generator), torch.randn(ROWS, n, generator=generator)
    t[0], t[1] = 0.0, 1.0
    leaves = list(model.tensors.values())
    for leaf in leaves:
        leaf.requires_grad_()
    loss = model.loss(x, y, t, noise)
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    for leaf in leaves:
        leaf.requires_grad_(False)
    x.requires_grad_()
    density, z, log_det = model.log_density(x, y)
    (gradient,) = torch.autograd.grad(density.sum(), x)
    return {
        "kind": "flow_matching",
        "n": n,
        "m": m,
        "width": width,
        "blocks": blocks,
        "embedding": embedding,
        "evaluation_steps": steps,
        "params": {key: plain(value) for key, value in model.tensors.items()},
        "x": plain(x),
        "y": plain(y),
        "t": plain(t),
        "noise": plain(noise),
        "field_at_t_0_37": plain(vmap(lambda x, y: model.field(torch.tensor(0.37), x, y))(x, y)),
        "loss": loss.item(),
        "grad_loss": dict(zip(model.tensors, map(plain, gradients))),
        "z": plain(z),
        "log_det": plain(log_det),
        "log_density": plain(density),
        "grad_log_density": plain(gradient),
        "draw_of_noise": plain(model.draw(noise, y)),
    }


if __name__ == "__main__":
    main(__doc__, FIXTURES, compute)
