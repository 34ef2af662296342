"""Draws, densities, modes, files, pictures."""

import copy
import math
import pickle

import numpy as np
import pytest

import brenier as br

Y = {"a": 0.3, "b": 1.0}


def test_shapes_and_seeds(posterior):
    one = posterior.sample(Y, 50, seed=3)
    assert one.shape == (50, 2) and np.asarray(one).shape == (50, 2)
    assert one == posterior.sample([0.3, 1.0], 50, seed=3)
    many = posterior.sample(np.array([[0.3, 1.0], [0.0, -1.0]]), 50, seed=3)
    assert many.shape == (2, 50, 2)
    assert np.allclose(many[0], one.values, rtol=1e-6)
    assert (one["rate"] > 0.1).all() and (one["rate"] < 10).all()
    assert many.mean().shape == (2, 2) and many.quantile([0.1, 0.9]).shape == (2, 2, 2)
    assert posterior.predict_quantiles(np.zeros((4, 2))).shape == (4, 3, 2)


def test_log_prob_shapes_and_gradient(posterior):
    draws = posterior.sample(Y, 20, log_prob=True)
    density = posterior.log_prob(draws, Y)
    assert density.shape == (20,) and np.array_equal(density, draws.log_prob)
    assert np.isscalar(posterior.log_prob(draws[0], Y))
    many = posterior.sample(np.zeros((3, 2)), 20)
    assert posterior.log_prob(many, np.zeros((3, 2))).shape == (3, 20)
    assert posterior.log_prob({"rate": -1.0, "shift": 0.0}, Y) == -np.inf
    value, gradient = posterior.log_prob(draws, Y, grad=True)
    # One and the same density; the map's gradient is evaluated by other kernels than its density alone.
    assert np.allclose(value, density, rtol=1e-10) and gradient.shape == (20, 2)
    step = 1e-6
    for j in range(2):
        shift = np.zeros(2)
        shift[j] = step
        slope = (posterior.log_prob(draws.values + shift, Y) - posterior.log_prob(draws.values - shift, Y)) / (2 * step)
        assert np.allclose(slope, gradient[:, j], rtol=1e-4, atol=1e-5)


def test_map_is_a_maximum(posterior):
    best = posterior.map(Y)
    assert best.point.shape == (2,) and best["rate"] == best.point[0]
    assert best.log_prob >= posterior.log_prob(posterior.sample(Y, 500), Y).max() - 1e-9
    assert best.settled is True and best.agreeing >= 1
    several = posterior.map(np.zeros((3, 2)))
    assert several.point.shape == (3, 2) and several.settled.all() and several.log_prob.shape == (3,)


def test_map_answers_where_there_is_a_maximum():
    rng = np.random.default_rng(0)
    y = rng.uniform(size=4000)
    # One mode at y = 0, at y = 1 a density with poles at both bounds.
    theta = [0.5 * math.erfc(-z / math.sqrt(2)) for z in rng.normal(size=4000) * np.exp(3.5 * y - 2)]
    theta = np.clip(theta, 1e-9, 1 - 1e-9)[:, None]
    settings = {"support": {"theta_1": "interval(0,1)"}, "method": "gaussian", "covariance": "log-affine"}
    found = br.fit(theta, y[:, None], progress=False, **settings)
    with pytest.warns(br.BrenierWarning, match="observation 2: .* no maximum"):
        best = found.map(np.array([[0.0], [1.0]]))
    assert abs(best.point[0, 0] - 0.5) < 0.05 and np.isnan(best.point[1, 0]) and np.isnan(best.log_prob[1])
    assert best.settled.tolist() == [True, False]
    with pytest.raises(br.NumericalError, match="no maximum"):
        found.map([1.0])


def test_files_pickles_copies_and_equality(posterior, gaussian, tmp_path):
    posterior.save(tmp_path / "model.brenier")
    back = br.load(tmp_path / "model.brenier")
    assert back == posterior and hash(back) == hash(posterior) and back != gaussian
    assert pickle.loads(pickle.dumps(posterior)) == posterior
    assert copy.deepcopy(posterior) == posterior == copy.copy(posterior)
    assert br.Posterior.from_bytes(posterior.to_bytes()) == posterior
    assert back.sample(Y, 10) == posterior.sample(Y, 10)
    draws = posterior.sample(Y, 10)
    assert pickle.loads(pickle.dumps(draws)) == draws


def test_ensembles_and_joint_models(pairs):
    train, held_out = pairs
    ensemble = br.fit(train, method="gaussian", members=3, progress=False)
    assert len(ensemble.header["members"]) == 3
    assert ensemble.disagreement(Y).shape == (1,)
    joint = br.fit(train, method="gaussian", joint=True, progress=False)
    table = joint.sample_joint(30)
    assert table.names == ["rate", "shift", "a", "b"] and len(table) == 30
    x, y = held_out.values[:5, :2], held_out.values[:5, 2:]
    assert np.allclose(joint.log_prob(x, y, joint=True), joint.log_prob(x, y) + joint.marginal.log_prob(y))
    density = br.fit(train, target="a,b", given=None, method="gaussian", progress=False)
    assert density.given_names == [] and density.sample(n=7).shape == (7, 2)


def test_dependence_of_adaptive_maps(gaussian):
    rng = np.random.default_rng(3)
    u, v, noise = rng.normal(size=(3, 800))
    data = {"first": u + 0.1 * rng.normal(size=800), "second": u * v + 0.1 * rng.normal(size=800), "u": u, "v": v, "noise": noise}
    model = br.fit(data, target="first,second", given="u,v,noise", method="atm", progress=False)
    assert model.dependence == {"first": ["u"], "second": ["v", "first"]}
    assert gaussian.dependence is None


def test_pictures_and_pages(posterior, pairs, tmp_path):
    draws = posterior.sample(Y, 300)
    picture = draws.plot_pairs(truth={"rate": 1.0, "shift": 0.5}, mode=posterior.map(Y), log=["rate"])
    assert picture._repr_svg_().startswith("<svg") and "shift" in picture.svg
    picture.save(tmp_path / "pairs.svg")
    picture.save(tmp_path / "pairs.png", dots=60)
    assert (tmp_path / "pairs.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in draws.plot_marginals().svg and "<svg" in posterior.plot_learning().svg
    assert "<table>" in posterior._repr_html_() and "<table>" in draws._repr_html_()
    assert "rate" in repr(draws) and "PCP-Map" in repr(posterior)
    with pytest.raises(br.SettingError):
        picture.save(tmp_path / "pairs.pdf")


def test_extrapolation_is_warned_of(posterior):
    with pytest.warns(br.BrenierWarning, match="extrapolation"):
        posterior.sample({"a": 0.0, "b": 500.0}, 5)


def test_progress_is_called_back(pairs):
    seen = []
    br.fit(pairs[0], epochs=30, feature_width=16, progress=seen.append)
    assert seen and {"line", "part", "seconds"} <= set(seen[-1])
    assert seen[-1]["best_valid_nll"] < 10
