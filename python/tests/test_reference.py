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
CASES = {
    "pcp-map": dict(method="pcp-map", epochs=3, feature_width=8),
    "pcp-map, softplus output, deep": dict(method="pcp-map", epochs=2, feature_width=6, depth=3, output_activation="softplus"),
    "pcp-map, pca and robust scaling": dict(method="pcp-map", epochs=2, feature_width=6, pca=2, scaling="robust"),
    "pcp-map, reduced": dict(method="pcp-map", epochs=2, feature_width=6, reduce=2),
    "cot-flow": dict(method="cot-flow", epochs=2, feature_width=8),
    "cot-flow, embedded": dict(method="cot-flow", epochs=2, feature_width=6, depth=3, embedding=[5, 2]),
    "gaussian": dict(method="gaussian"),
    "gaussian, log-affine": dict(method="gaussian", covariance="log-affine"),
    "ensemble": dict(method="gaussian", members=3),
    "ensemble of pcp-maps": dict(method="pcp-map", epochs=2, feature_width=6, members=2),
}


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.mark.parametrize("name", CASES)
def test_densities_gradients_and_draws_agree(name, data, tmp_path):
    model = br.fit(data, target=TARGET, given=GIVEN, support=SUPPORT, progress=False, **CASES[name])
    model.save(tmp_path / "model.brenier")
    own = reference.read(tmp_path / "model.brenier")
    x = np.column_stack([data[column] for column in TARGET])[:40]
    y = np.column_stack([data[column] for column in GIVEN])[:40]
    density, gradient = model.log_prob(x, y, grad=True)
    assert np.abs(own.log_prob(x, y) - density).max() < 1e-10 * max(1.0, np.abs(density).max())
    assert np.abs(own.gradient(x, y) - gradient).max() < 1e-10 * max(1.0, np.abs(gradient).max())
    outside = x.copy()
    outside[0, 2] = 1.5
    assert own.log_prob(outside, y)[0] == -np.inf
    # Draws of Rust come back from their reference points.
    drawn = model.sample(y[0], 30, tolerance=1e-11).values if "pcp" in name else model.sample(y[0], 30).values
    rows = np.repeat(y[:1], 30, axis=0)
    if len(own.maps) == 1 and CASES[name]["method"] != "cot-flow":
        assert np.allclose(own.push(own.pull(drawn, rows), rows), drawn, rtol=1e-8)
    assert own.sample(y[0], 25).shape == (25, 4)


@pytest.mark.parametrize("unconditional", ["full", "augmented", "partial"])
def test_unconditional_and_joint_models(unconditional, data, tmp_path):
    model = br.fit(data, target=["free", "positive"], given=["y1"], support={"positive": "log"}, joint=True, unconditional=unconditional, epochs=2, feature_width=7, progress=False)
    model.save(tmp_path / "model.brenier")
    own = reference.read(tmp_path / "model.brenier")
    x, y = np.column_stack([data["free"], data["positive"]])[:30], data["y1"][:30, None]
    assert np.abs(own.log_prob(x, y) - model.log_prob(x, y)).max() < 1e-10
    assert np.abs(own.marginal.log_prob(y) - model.marginal.log_prob(y)).max() < 1e-10


def test_flow_draws_follow_the_same_steps(data, tmp_path):
    model = br.fit(data, target=["free"], given=["y1"], method="cot-flow", epochs=2, feature_width=6, progress=False)
    model.save(tmp_path / "model.brenier")
    own = reference.read(tmp_path / "model.brenier")
    drawn = model.sample([0.2], 20, residuals=True)
    rows = np.full((20, 1), 0.2)
    # What Runge–Kutta leaves on the way there and back, as Rust reports it.
    assert np.allclose(np.abs(own.pull(own.push(own.pull(drawn.values, rows), rows), rows) - own.pull(drawn.values, rows)).max(), 0, atol=1e-3)


def test_it_runs_under_jax(data, tmp_path):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    model = br.fit(data, target=["free", "positive"], given=["y1"], support={"positive": "log"}, epochs=2, feature_width=6, progress=False)
    model.save(tmp_path / "model.brenier")
    own = reference.read(tmp_path / "model.brenier", jax.numpy)
    x, y = np.column_stack([data["free"], data["positive"]])[:10], data["y1"][:10, None]
    density, gradient = model.log_prob(x, y, grad=True)
    assert np.abs(np.asarray(own.log_prob(x, y)) - density).max() < 1e-10
    found = jax.grad(lambda x: own.log_prob(x, y).sum())(jax.numpy.asarray(x))
    assert np.abs(np.asarray(found) - gradient).max() < 1e-9
