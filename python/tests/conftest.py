"""Small problems that the tests share."""

import signal

import numpy as np
import pytest

import brenier as br

# A shell makes its background jobs ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

PRIOR = br.Prior(rate=br.log_uniform(0.1, 10), shift=br.normal(0, 2))


def simulator(theta, seed):
    """Two noisy readings of rate and shift."""
    rng = np.random.default_rng(seed)
    return {"a": np.log(theta["rate"]) + 0.3 * rng.standard_normal(), "b": theta["shift"] + 0.5 * rng.standard_normal()}


@pytest.fixture(scope="session")
def sims():
    return br.simulate(simulator, PRIOR, n=1200, seed=1, progress=False)


@pytest.fixture(scope="session")
def pairs(sims):
    return sims.split(0.8, seed=1)


@pytest.fixture(scope="session")
def posterior(pairs):
    return br.fit(pairs[0], target=["rate", "shift"], given="rest", epochs=12, feature_width=16, seed=1, progress=False)


@pytest.fixture(scope="session")
def gaussian(pairs):
    return br.fit(pairs[0], method="gaussian", progress=False)
