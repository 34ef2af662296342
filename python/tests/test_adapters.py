"""ArviZ and sbi, where they are installed."""

import pickle

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
    assert found["rate"].shape == (1, 200) and float(group(one, "observed_data")["a"]) == 0.3
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


def test_sbi_map(posterior, sbi_posterior):
    import torch

    x = torch.tensor(Y, dtype=torch.float32)
    sbi_posterior.set_default_x(x)
    found = sbi_posterior.map(num_iter=100, num_init_samples=100, num_to_optimize=10, show_progress_bars=False)
    best = posterior.map(Y)
    assert posterior.log_prob(found.double().numpy().ravel(), Y) > best.log_prob - 0.2
