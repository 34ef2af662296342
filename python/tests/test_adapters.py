"""ArviZ, sbi and BayesFlow, where they are installed."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import brenier as br
from conftest import PRIOR

Y = np.array([0.3, 1.0])


def group(data, name):
    """A group of InferenceData (0.x) or of a DataTree (1.x)."""
    return data[name]


def test_arviz_draws(posterior, pairs, tmp_path):
    arviz = pytest.importorskip("arviz")
    one = posterior.sample(Y, 200, log_prob=True).to_arviz(prior=pairs[0], posterior_predictive={"a": np.zeros(200)})
    found = group(one, "posterior")
    assert found["rate"].shape == (1, 200) and np.asarray(group(one, "observed_data")["a"]).item() == 0.3
    assert group(one, "sample_stats")["lp"].shape == (1, 200) and "prior" in (one.groups() if callable(getattr(one, "groups", None)) else [g.strip("/") for g in one.groups])
    assert one.attrs["library"] == "brenier"
    many = posterior.sample(np.array([Y, Y + 1]), 100).to_arviz()
    assert group(many, "posterior")["rate"].shape == (1, 100, 2)
    assert len(arviz.summary(one, round_to=3)) == 2
    with pytest.raises(br.ShapeError):
        br.Draws(np.zeros((3, 1)), ["x"], weights=[1, 1, 1]).to_arviz()


def test_arviz_verdict(posterior, pairs):
    pytest.importorskip("arviz")
    data = posterior.check(pairs[1], draws=99, progress=False).to_arviz()
    values = group(data, "prior_sbc")["rate"]
    assert values.shape[0] == 1 and 0 < float(values.min()) and float(values.max()) < 1


def test_arviz_plots_and_files(posterior, pairs, tmp_path):
    """Written to PICTURES if that is set, to be looked at."""
    arviz = pytest.importorskip("arviz")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder = Path(os.environ.get("PICTURES", tmp_path))
    old = int(arviz.__version__.split(".")[0]) < 1
    draws = posterior.sample(Y, 500).to_arviz()
    verdict = posterior.check(pairs[1], draws=99, progress=False).to_arviz()
    if old:
        arviz.plot_pair(draws, marginals=True)
        plt.gcf().savefig(folder / f"arviz-{arviz.__version__}-pair.png")
        plt.close("all")
        # Its plot_ecdf takes plain numbers and, for ranks, the uniform distribution.
        ranks = np.ravel(group(verdict, "prior_sbc")["rate"])
        arviz.plot_ecdf(ranks, cdf=lambda rank: np.clip(rank, 0, 1), eval_points=np.linspace(0, 1, 101), difference=True, confidence_bands="pointwise")
    else:
        arviz.plot_pair(draws)
        plt.gcf().savefig(folder / f"arviz-{arviz.__version__}-pair.png")
        plt.close("all")
        arviz.plot_ecdf_pit(verdict, group="prior_sbc", coverage=False)
    plt.gcf().savefig(folder / f"arviz-{arviz.__version__}-ecdf_pit.png")
    plt.close("all")
    try:
        draws.to_netcdf(tmp_path / "draws.nc")
        back = arviz.from_netcdf(tmp_path / "draws.nc")
    except (ImportError, ValueError):  # no engine for netCDF
        pytest.importorskip("zarr")
        draws.to_zarr(tmp_path / "draws.zarr")
        back = arviz.from_zarr(tmp_path / "draws.zarr")
    assert np.array_equal(np.asarray(group(back, "posterior")["rate"]), np.asarray(group(draws, "posterior")["rate"]))


@pytest.fixture(scope="module")
def sbi_posterior(posterior):
    pytest.importorskip("sbi")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return posterior.to_sbi(PRIOR.to_torch())


def test_sbi_draws_and_densities(posterior, sbi_posterior):
    import torch

    x = torch.tensor(Y, dtype=torch.float32)
    draws = sbi_posterior.sample((50,), x=x, show_progress_bars=False)
    assert draws.shape == (50, 2)
    own = posterior.log_prob(draws.double().numpy(), Y)
    assert np.allclose(sbi_posterior.log_prob(draws, x=x).numpy(), own, atol=1e-3)
    batch = sbi_posterior.sample_batched((20,), x=torch.stack([x, x]), show_progress_bars=False)
    assert batch.shape == (20, 2, 2)
    back = pickle.loads(pickle.dumps(sbi_posterior))
    assert torch.isfinite(back.log_prob(draws, x=x)).all()


def test_sbi_diagnostics(sbi_posterior, pairs):
    import torch
    from sbi.diagnostics import check_sbc, run_sbc, run_tarp

    theta = torch.tensor(pairs[1].values[:60, :2], dtype=torch.float32)
    x = torch.tensor(pairs[1].values[:60, 2:], dtype=torch.float32)
    ranks, samples = run_sbc(theta, x, sbi_posterior, num_posterior_samples=50, show_progress_bar=False)
    assert ranks.shape == (60, 2)
    found = check_sbc(ranks, theta, samples, num_posterior_samples=50)
    assert torch.isfinite(found["ks_pvals"]).all()
    coverage, alpha = run_tarp(theta, x, sbi_posterior, num_posterior_samples=50, show_progress_bar=False)
    assert coverage.shape == alpha.shape


def test_sbi_local_classifier_and_pairplot(sbi_posterior, pairs, tmp_path):
    import torch
    from sbi.analysis import pairplot
    from sbi.diagnostics.lc2st import LC2ST

    theta = torch.tensor(pairs[1].values[:200, :2], dtype=torch.float32)
    x = torch.tensor(pairs[1].values[:200, 2:], dtype=torch.float32)
    own = torch.cat([sbi_posterior.sample((1,), x=one, show_progress_bars=False) for one in x])
    test = LC2ST(theta, x, own, seed=1, num_folds=1, num_ensemble=1, classifier="mlp", num_trials_null=5)
    test.train_under_null_hypothesis(verbosity=0)
    test.train_on_observed_data(verbosity=0)
    at = torch.tensor(Y, dtype=torch.float32)
    draws = sbi_posterior.sample((200,), x=at, show_progress_bars=False)
    assert 0.0 <= float(test.p_value(draws, at)) <= 1.0
    figure, _ = pairplot(draws, labels=["rate", "shift"], figsize=(5, 5))
    figure.savefig(Path(os.environ.get("PICTURES", tmp_path)) / "sbi-pairplot.png")


def test_sbi_map(posterior, sbi_posterior):
    import torch

    x = torch.tensor(Y, dtype=torch.float32)
    sbi_posterior.set_default_x(x)
    found = sbi_posterior.map(num_iter=100, num_init_samples=100, num_to_optimize=10, show_progress_bars=False)
    best = posterior.map(Y)
    assert posterior.log_prob(found.double().numpy().ravel(), Y) > best.log_prob - 0.2


def test_sbi_ensembles(posterior, gaussian, sbi_posterior):
    import torch
    from sbi.inference.posteriors import EnsemblePosterior

    weights = [0.25, 0.75]
    both = EnsemblePosterior([sbi_posterior, gaussian.to_sbi(PRIOR.to_torch())], weights=weights)
    x = torch.tensor(Y, dtype=torch.float32)
    draws = both.sample((400,), x=x, show_progress_bars=False)
    assert draws.shape == (400, 2)
    each = [own.log_prob(draws.double().numpy(), Y) for own in (posterior, gaussian)]
    mixed = np.logaddexp(*(one + np.log(weight) for one, weight in zip(each, weights)))
    assert np.allclose(both.log_prob(draws, x=x).numpy(), mixed, atol=1e-3)
    own = np.concatenate([posterior.sample(Y, 500).values, gaussian.sample(Y, 1500).values])
    assert np.allclose(draws.log()[:, 0].mean(), np.log(own[:, 0]).mean(), atol=0.1)


def test_bayesflow_diagnostics(posterior, pairs, tmp_path, monkeypatch):
    """Plain arrays of shape (observation, draw, parameter), as docs/python.md has them."""
    pytest.importorskip("jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    bf = pytest.importorskip("bayesflow")
    import matplotlib

    matplotlib.use("Agg")
    held_out = pairs[1]
    draws = posterior.sample(held_out.outputs, 300)
    assert draws.values.shape == (len(held_out), 300, 2)
    both = dict(estimates=draws.values, targets=held_out.parameters.values, variable_names=draws.names)
    for plot in (bf.diagnostics.calibration_ecdf, bf.diagnostics.calibration_histogram, bf.diagnostics.recovery, bf.diagnostics.z_score_contraction):
        figure = plot(**both)
        assert [axes.get_title() for axes in figure.axes][:2] == ["rate", "shift"]
        figure.savefig(Path(os.environ.get("PICTURES", tmp_path)) / f"bayesflow-{plot.__name__}.png")
    found = bf.diagnostics.posterior_contraction(**both)
    own = 1 - np.median(draws.values.var(axis=1, ddof=1) / held_out.parameters.values.var(axis=0, ddof=1), axis=0)
    assert np.allclose(found["values"], own)
    assert (np.asarray(bf.diagnostics.calibration_error(**both)["values"]) < 0.15).all()
