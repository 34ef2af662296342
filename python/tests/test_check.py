"""Verdicts, comparisons, calibration, searches."""

import json

import numpy as np
import pytest

import brenier as br
from conftest import PRIOR, simulator


def test_a_verdict(posterior, pairs, tmp_path):
    verdict = posterior.check(pairs[1], simulator=simulator, predictive_observations=10, predictive_draws=20, draws=99, progress=False)
    assert verdict.trust in ("trustworthy", "care", "untrustworthy")
    assert bool(verdict) == (verdict.trust != "untrustworthy")
    assert verdict.findings and {"severity", "topic", "text"} <= set(verdict.findings[0])
    assert verdict.figures["predictive"] is not None
    assert "<iframe" in verdict._repr_html_() and verdict.headline in repr(verdict)
    assert verdict.ranks["rate"][0].shape == (verdict.figures["held_out"]["pairs"],)
    assert "<svg" in verdict.plot_ranks("rate").svg
    verdict.save(tmp_path / "report.html")
    verdict.save(tmp_path / "check.json")
    assert json.loads((tmp_path / "check.json").read_text()) == verdict.figures
    arrays = posterior.check(pairs[1].values[:, :2], pairs[1].values[:, 2:], draws=99, progress=False)
    assert arrays.figures["likelihood"] == verdict.figures["likelihood"]


def test_a_model_of_something_else_is_not_trusted(posterior, pairs):
    wrong = br.Table(pairs[1].names, pairs[1].values.copy())
    wrong.values[:, 1] += 3.0
    assert not posterior.check(wrong, draws=99, progress=False)


def test_errors_of_a_simulator_in_a_check(posterior, pairs):
    with pytest.raises(br.BrenierError):
        posterior.check(pairs[1], simulator=lambda theta, seed: [1.0, 2.0, 3.0], draws=99, progress=False)


def test_compare_and_calibrate():
    rng = np.random.default_rng(0)
    same = br.compare(rng.normal(size=(500, 2)), rng.normal(size=(500, 2)))
    other = br.compare(rng.normal(size=(500, 2)), rng.normal(1.0, size=(500, 2)))
    assert same.p_value > 0.01 > other.p_value and other.c2st > 0.65
    truth = rng.normal(size=(300, 1))
    assert br.calibrate(truth, rng.normal(size=(300, 99, 1)))
    assert not br.calibrate(truth, 0.3 * rng.normal(size=(300, 99, 1)))


def test_abc_finds_the_observation():
    draws = br.abc(simulator, PRIOR, {"a": 0.3, "b": 1.0}, particles=100, pilot=200, max_simulations=4000, seed=1, progress=False)
    assert draws.weights.shape == (len(draws),) and abs(draws.weights.sum() - 1) < 1e-9
    assert abs(draws.mean()[1] - 1.0) < 0.7
    again = br.abc(simulator, PRIOR, {"a": 0.3, "b": 1.0}, particles=100, pilot=200, max_simulations=4000, seed=1, progress=False, executor=2)
    assert draws == again
    with pytest.raises(br.SettingError, match="when to end"):
        br.abc(simulator, PRIOR, {"a": 0.3, "b": 1.0}, progress=False)


def test_tune(pairs, tmp_path):
    found = br.tune(
        pairs[0], space='[method]\nfeature_width = [4, 8]\n[train]\nlearning_rate = [0.005]\n', trials=2, finalists=1, repeats=1,
        pilot_epochs=1, epochs=2, seed=1, folder=tmp_path / "search", progress=False,
    )
    assert found.best.target_names == ["rate", "shift"] and found.figures["complete"]
    assert found.settings["method"]["feature_width"] in (4, 8)
