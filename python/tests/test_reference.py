"""The evaluator in NumPy agrees with Rust to 1e-10 in double precision: every method, every transform."""

import numpy as np
import pytest

import brenier as br
from brenier import reference

RNG = np.random.default_rng(4)
N = 500


def table():
    """Columns of every support, and given columns to project."""
    z = RNG.normal(size=(N, 6))
    return {
        "free": z[:, 0] + 0.5 * z[:, 4],
        "positive": np.exp(0.7 * z[:, 1] + 0.3 * z[:, 5]),
        "share": 1 / (1 + np.exp(-z[:, 2])),
        "decade": 0.01 * (1000 ** (1 / (1 + np.exp(-z[:, 3])))),
        "y1": z[:, 4], "y2": np.exp(z[:, 5]), "y3": z[:, 4] + z[:, 5] + 0.1 * RNG.normal(size=N),
    }


SUPPORT = {"positive": "log", "share": "interval(0,1)", "decade": "log-interval(0.01,10)", "y2": "log"}
TARGET, GIVEN = ["free", "positive", "share", "decade"], ["y1", "y2", "y3"]
SMALL = dict(epochs=2, feature_width=6)
CASES = {
    "pcp-map": dict(method="pcp-map", epochs=3, feature_width=8),
    "pcp-map, softplus output, deep": dict(method="pcp-map", depth=3, output_activation="softplus", **SMALL),
    "pcp-map, pca and robust scaling": dict(method="pcp-map", pca=2, scaling="robust", **SMALL),
    "pcp-map, reduced": dict(method="pcp-map", reduce=2, **SMALL),
    "pcp-map, whitened": dict(method="pcp-map", whiten="target", **SMALL),
    "pcp-map, affine front": dict(method="pcp-map", front="affine", **SMALL),
    "pcp-map, noise and jitter": dict(method="pcp-map", noise="y1=0.1", jitter="y3=0.05", **SMALL),
    "pcp-map, noise, reduced, whitened": dict(method="pcp-map", front="affine", noise="y1=0.1", reduce=2, whiten="target", **SMALL),
    "npe, two exchangeable points": dict(method="npe", exchangeable=["y1,y3:2:2"], epochs=2, hidden_width=6, transforms=2),
    "cot-flow": dict(method="cot-flow", epochs=2, feature_width=8),
    "cot-flow, embedded": dict(method="cot-flow", depth=3, embedding=[5, 2], **SMALL),
    "gaussian": dict(method="gaussian"),
    "gaussian, log-affine": dict(method="gaussian", covariance="log-affine"),
    "npe, splines": dict(method="npe", epochs=2, hidden_width=8, transforms=3),
    "npe, splines, embedded and whitened": dict(method="npe", epochs=2, hidden_width=6, transforms=2, blocks=1, bins=5, embedding=[4, 2], whiten="target"),
    "npe, masked": dict(method="npe", flow="maf", epochs=2, hidden_width=9, transforms=3, permutation_seed=7),
    "npe, masked, embedded": dict(method="npe", flow="maf", epochs=2, hidden_width=6, transforms=2, blocks=1, embedding=[4, 2], pca=2),
    "npe, autoregressive front": dict(method="npe", front="autoregressive", front_width=5, epochs=2, hidden_width=6, transforms=2, scaling="common"),
    "npe, masked, embedded, autoregressive front": dict(method="npe", flow="maf", front="autoregressive", front_width=4, epochs=2, hidden_width=6, transforms=1, embedding=[4, 3]),
    "flow-matching": dict(method="flow-matching", max_steps=400, learning_rate=0.01, feature_width=16, blocks=2),
    "flow-matching, embedded and whitened": dict(method="flow-matching", max_steps=400, learning_rate=0.01, feature_width=12, blocks=1, embedding=[5, 2], evaluation_steps=7, whiten="target"),
    "cp-flow": dict(method="cp-flow", **SMALL),
    "cp-flow, two blocks": dict(method="cp-flow", blocks=2, depth=2, **SMALL),
    "atm": dict(method="atm", max_terms=8, folds=2),
    "ensemble": dict(method="gaussian", members=3),
    "ensemble of pcp-maps": dict(method="pcp-map", members=2, **SMALL),
    "ensemble of flows": dict(method="npe", members=2, epochs=1, hidden_width=6, transforms=2),
}


@pytest.fixture(scope="module")
def data():
    return table()


def table_of(name, data):
    """The table of a case. Flow matching starts at the identity and stays there unless targets follow the given columns closely."""
    if CASES[name]["method"] != "flow-matching":
        return data
    return {**data, "free": data["y1"] + 0.1 * data["free"], "positive": data["y2"] * data["positive"] ** 0.2}


def fit_and_read(data, tmp_path, target=TARGET, given=GIVEN, **settings):
    support = {name: text for name, text in SUPPORT.items() if name in [*target, *given]}
    model = br.fit(data, target=target, given=given, support=support, progress=False, **settings)
    model.save(tmp_path / "model.brenier")
    return model, reference.read(tmp_path / "model.brenier")


def close(own, other, part=1e-10):
    """Whether arrays agree to a part of the largest number, or of 1."""
    return np.abs(own - other).max() < part * max(1.0, np.abs(other).max())


def rows(data, names, count=40):
    return np.column_stack([data[name] for name in names])[:count]


def test_every_method_is_known():
    assert set(reference.METHODS) == {method["name"] for method in br.methods()}


@pytest.mark.parametrize("name", CASES)
def test_densities_gradients_and_draws_agree(name, data, tmp_path):
    data = table_of(name, data)
    model, own = fit_and_read(data, tmp_path, **CASES[name])
    x, y = rows(data, TARGET), rows(data, GIVEN)
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(own.log_prob(x, y), density)
    assert close(own.gradient(x, y), gradient)
    if CASES[name]["method"] == "flow-matching":
        assert np.any(own.maps[0].p["V"]), "the map is the identity and tells nothing"
    outside = x.copy()
    outside[0, 2] = 1.5
    assert own.log_prob(outside, y)[0] == -np.inf
    assert own.sample(y[0], 25).shape == (25, 4)
    if len(own.maps) > 1:
        return
    # Both draw x = g(z; y): the reference points z of a seed are those of any other model of as many columns.
    plain, plain_own = fit_and_read(data, tmp_path, method="gaussian")
    at = np.repeat(y[:1], 30, axis=0)
    z = plain_own.pull(plain.sample(y[0], 30, seed=3).values, at)
    drawn = model.sample(y[0], 30, seed=3, **({"tolerance": 1e-12} if CASES[name]["method"] in ("pcp-map", "cp-flow", "atm") else {}))
    # Flows along a field draw in single precision.
    single = CASES[name]["method"] in ("cot-flow", "flow-matching")
    assert close(own.push(z, at), drawn.values, 1e-5 if single else 1e-10)


def test_one_target_column_and_joint_models(data, tmp_path):
    for flow in ("nsf", "maf"):
        model, own = fit_and_read(data, tmp_path, ["positive"], ["y1", "y2"], method="npe", flow=flow, joint=True, epochs=2, hidden_width=6, transforms=2)
        x, y = rows(data, ["positive"]), rows(data, ["y1", "y2"])
        density, gradient = model.log_prob(x, y, grad=True)
        assert close(own.log_prob(x, y), density) and close(own.gradient(x, y), gradient)
        assert close(own.marginal.log_prob(y), model.marginal.log_prob(y))


@pytest.mark.parametrize("method", ["npe", "gaussian", "pcp-map"])
def test_points_in_no_particular_order(method, tmp_path):
    points = RNG.normal(size=(N, 8))
    data = {"x": points.mean(axis=1) + 0.3 * RNG.normal(size=N), "s": np.exp(points.std(axis=1))}
    data |= {f"p{j + 1}": points[:, j] for j in range(8)}
    own = {} if method == "gaussian" else dict(epochs=1)
    model = br.fit(data, target="x,s", given="p1..p8", support={"s": "log"}, exchangeable=["p1..p8:4"], whiten="target", method=method, progress=False, **own)
    model.save(tmp_path / "model.brenier")
    plain = reference.read(tmp_path / "model.brenier")
    x, y = rows(data, ["x", "s"]), points[:40]
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(plain.log_prob(x, y), density) and close(plain.gradient(x, y), gradient)
    assert np.array_equal(model.log_prob(x, y[:, [4, 5, 0, 1, 6, 7, 2, 3]]), density)


@pytest.mark.parametrize("unconditional", ["full", "augmented", "partial"])
def test_unconditional_networks(unconditional, data, tmp_path):
    model, own = fit_and_read(data, tmp_path, ["free", "positive"], ["y1"], joint=True, unconditional=unconditional, epochs=2, feature_width=7)
    x, y = rows(data, ["free", "positive"]), rows(data, ["y1"])
    assert close(own.log_prob(x, y), model.log_prob(x, y))
    assert close(own.marginal.log_prob(y), model.marginal.log_prob(y))


JAX_CASES = ["pcp-map, whitened", "cot-flow, embedded", "gaussian", "npe, splines", "npe, masked", "flow-matching", "cp-flow", "atm", "ensemble of flows"]


@pytest.mark.parametrize("name", JAX_CASES)
def test_it_runs_under_jax(name, data, tmp_path):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    data = table_of(name, data)
    model, _ = fit_and_read(data, tmp_path, **CASES[name])
    own = reference.read(tmp_path / "model.brenier", jax.numpy)
    x, y = rows(data, TARGET, 10), rows(data, GIVEN, 10)
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(np.asarray(own.log_prob(x, y)), density)
    found = jax.grad(lambda x: own.log_prob(x, y).sum())(jax.numpy.asarray(x))
    assert close(np.asarray(found), gradient, 1e-9)
