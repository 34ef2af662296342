#!/usr/bin/env python3
"""Golden values of CP-Flow for crates/brenier/tests/fixtures/cpflow_*.json, by automatic differentiation in PyTorch.

usage: golden_cpflow.py FOLDER             writes every fixture
       golden_cpflow.py --seed 7 FOLDER    the same sizes with other random parameters and points
       golden_cpflow.py --check            compares the committed fixtures with what is computed here, to 1e-10
needs: pip install torch numpy

The formulas and the names of the tensors are those of docs/methods.md, in double precision. Nothing is differentiated by hand:
gradients and Hessians in x are nested automatic derivatives, gradients in parameters and points a backward pass over them.
"""
import math
import sys

try:
    import torch
except ImportError:
    sys.exit("golden_cpflow.py needs PyTorch: pip install torch numpy")
from torch.func import grad, jacfwd, vmap
from torch.nn.functional import elu, softplus

from fixtures import main, plain

ROWS = 7
PEAK = 1.0 / math.sqrt(2.0 * math.pi)

# name: target, given, width, depth, blocks
FIXTURES = {
    "cpflow_n1": (1, 2, 5, 2, 1),
    "cpflow_n3": (3, 2, 6, 3, 1),
    "cpflow_n3_shallow": (3, 0, 4, 1, 1),
    "cpflow_n1_blocks": (1, 2, 4, 3, 2),
    "cpflow_n3_blocks": (3, 2, 5, 2, 2),
}


def gaussian_softplus(s):
    """ψ with ψ' = Φ and ψ(0) = 0."""
    return s * 0.5 * torch.erfc(-s / math.sqrt(2.0)) + PEAK * (torch.exp(-0.5 * s * s) - 1.0)


class CpFlow:
    """AN(∇F_L(… AN(∇F_1(AN(x))))) with potentials F_l(x; y) that are convex in x."""

    def __init__(self, target, given, width, depth, blocks=1):
        self.target, self.given, self.width, self.depth, self.blocks = target, given, width, depth, blocks
        self.tensors = {}

    def shapes(self):
        """Name and shape of every tensor."""
        n, m, h, last = self.target, self.given, self.width, self.depth
        shapes = {f"outer.{part}.{i}": (n,) for i in range(self.blocks + 1) for part in ("shift", "scale")}
        for block in range(1, self.blocks + 1):
            own = {"B": (h, m), "b": (h,), "shift.c": (h,), "scale.c": (h,), "w": (2,)}
            for k in range(last + 1):
                outputs = h if k < last else 1
                own |= {f"X.{k}": (outputs, n), f"shift.{k}": (outputs,), f"scale.{k}": (outputs,)}
                if k < last:
                    own[f"bX.{k}"] = (h,)
                if k > 0:
                    own |= {f"P.{k}": (outputs, h), f"Wz.{k}": (h, h), f"bz.{k}": (h,), f"Wx.{k}": (n, h), f"bx.{k}": (n,)}
                if 0 < k < last:
                    own |= {f"bP.{k}": (h,), f"Wc.{k}": (h, h), f"bc.{k}": (h,)}
            shapes |= {self.named(block, name): shape for name, shape in own.items()}
        return shapes

    def named(self, block, name):
        return name if self.blocks == 1 else f"block{block}.{name}"

    def random(self, generator):
        """Parameters far from any start."""
        def draw(name, shape):
            values = torch.randn(shape, generator=generator)
            return values * (0.4 if ".scale" in name or "scale." in name else 1.0 / math.sqrt(max(shape[-1], 1)))

        self.tensors = {name: draw(name, shape) for name, shape in self.shapes().items()}

    def initialise(self):
        """The start of a training, normalisations as they are before the first batch."""
        for name, shape in self.shapes().items():
            kind = name.split(".")[0]
            bound = {"B": shape[-1], "X": shape[-1], "P": shape[-1], "Wc": shape[-1]}.get(kind)
            self.tensors[name] = (2.0 * torch.rand(shape) - 1.0) / math.sqrt(bound) if bound else torch.zeros(shape)
        self.tensors["w"][0] = math.log(math.e - 1.0)

    def normalise(self, name, values):
        """An activation normalisation; its name is that of its tensors without the last part."""
        prefix, _, place = name.rpartition("/")
        shift, scale = (self.tensors[f"{prefix}{part}.{place}"] for part in ("shift", "scale"))
        return (values + shift) * (torch.exp(scale) + 0.001)

    def potential(self, block, x, y):
        """F(x; y) of one row."""
        prefix = self.named(block, "")
        p = {name: self.tensors[self.named(block, name)] for name in self.own_names()}
        norm = lambda place, values: self.normalise(f"{prefix}/{place}", values)
        last, h = self.depth, self.width
        c = elu(norm("c", p["B"] @ y + p["b"]))
        s = norm(0, p["X.0"] @ x + p["bX.0"])
        w = gaussian_softplus(s) - 0.5 * s
        for k in range(1, last + 1):
            start = 1.0 / math.e if k < last else math.log(math.e - 1.0)
            gate = softplus(p[f"Wz.{k}"] @ c + p[f"bz.{k}"] + start)
            s = softplus(p[f"P.{k}"]) @ (w * gate) / h
            s = s + p[f"X.{k}"] @ (x * (p[f"Wx.{k}"] @ c + p[f"bx.{k}"] + 1.0))
            if k < last:
                s = s + p[f"bP.{k}"] / h + p[f"bX.{k}"] + p[f"Wc.{k}"] @ c + p[f"bc.{k}"]
                w = gaussian_softplus(norm(k, s))
        network = norm(last, s)[0]
        return softplus(p["w"][1]) * network + 0.5 * softplus(p["w"][0]) * (x @ x)

    def own_names(self):
        single = CpFlow(self.target, self.given, self.width, self.depth)
        return [name for name in single.shapes() if not name.startswith("outer")]

    def forward(self, x, y):
        """z and log |det ∂z/∂x| of every row."""
        outer = lambda place, values: self.normalise(f"outer./{place}", values)
        log_det = sum(torch.log(torch.exp(self.tensors[f"outer.scale.{i}"]) + 0.001).sum() for i in range(self.blocks + 1))
        x = outer(0, x)
        for block in range(1, self.blocks + 1):
            def map_twice(x, y):
                z = grad(lambda x: self.potential(block, x, y))(x)
                return z, z

            hessian, z = vmap(jacfwd(map_twice, has_aux=True))(x, y)
            log_det = log_det + 2.0 * torch.linalg.cholesky(hessian).diagonal(dim1=-2, dim2=-1).log().sum(1)
            x = outer(block, z)
        return x, log_det

    def log_density(self, x, y):
        z, log_det = self.forward(x, y)
        return log_det - 0.5 * z.square().sum(1) - 0.5 * self.target * math.log(2.0 * math.pi), z, log_det

    def loss(self, x, y):
        return -self.log_density(x, y)[0].mean()

    def project(self):
        """Positive weights are positive by softplus."""

    def products(self):
        """Multiplications of one row in the matrix products of our step, with one block."""
        n, m, h, last = self.target, self.given, self.width, self.depth
        gates = last * (h + n) + (last - 1) * h
        features = (last - 1) * h * h * 3 * (n + 2) + h * n
        return 2 * h * m + 3 * gates * h + features + last * h * n * (n + 1) // 2 + last * h * n * n


def compute(name, seed):
    n, m, width, depth, blocks = FIXTURES[name]
    model = CpFlow(n, m, width, depth, blocks)
    generator = torch.Generator().manual_seed(1000 * seed + sum(name.encode()))
    model.random(generator)
    x, y = torch.randn(ROWS, n, generator=generator), torch.randn(ROWS, m, generator=generator)
    leaves = [*model.tensors.values(), x]
    for leaf in leaves:
        leaf.requires_grad_()
    density, z, log_det = model.log_density(x, y)
    loss = -density.mean()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return {
        "kind": "cp_flow",
        "n": n,
        "m": m,
        "width": width,
        "depth": depth,
        "blocks": blocks,
        "params": {key: plain(value) for key, value in model.tensors.items()},
        "x": plain(x),
        "y": plain(y),
        "z": plain(z),
        "log_det": plain(log_det),
        "log_density": plain(density),
        "mean_nll": loss.item(),
        "grad_mean_nll": dict(zip([*model.tensors, "x"], map(plain, gradients))),
    }


if __name__ == "__main__":
    main(__doc__, FIXTURES, compute)
