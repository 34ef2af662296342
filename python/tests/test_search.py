"""Searches for settings: the same best model whatever runs the trials."""

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

import brenier as br

SEARCH = dict(trials=5, pilot_epochs=2, finalists=2, repeats=2, epochs=6, seed=2, progress=False)
SPACE = "[method]\nfeature_width = [4, 8]\n[train]\nlearning_rate = [0.01, 0.02, 0.005]\n"


@pytest.fixture(scope="module")
def alone(pairs):
    found = br.tune(pairs[0], space=SPACE, **SEARCH)
    assert found.figures["complete"] and len(found.figures["finals"]) == 4
    return found


def test_a_process_pool(alone, pairs, tmp_path):
    with ProcessPoolExecutor(2) as executor:
        shared = br.tune(pairs[0], space=SPACE, executor=executor, folder=tmp_path / "search", **SEARCH)
    assert shared.best == alone.best
    figures = lambda found: [(one["trial"], one["seed"], one["valid_nll"]) for one in found.figures["finals"]]  # noqa: E731
    assert figures(shared) == figures(alone)
    # The folder belongs to nobody: one process alone finds nothing left to do.
    started = time.monotonic()
    assert br.tune(pairs[0], space=SPACE, folder=tmp_path / "search", **SEARCH).best == alone.best
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("engine", ["loky", "distributed"])
def test_other_engines(engine, alone, pairs):
    module = pytest.importorskip(engine)
    if engine == "loky":
        executor = module.get_reusable_executor(max_workers=2)
        assert br.tune(pairs[0], space=SPACE, executor=executor, **SEARCH).best == alone.best
        return
    with module.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, module.Client(cluster) as client:
        assert br.tune(pairs[0], space=SPACE, executor=client.get_executor(), **SEARCH).best == alone.best


def test_mistakes_reach_the_caller(pairs):
    with ProcessPoolExecutor(1) as executor, pytest.raises(br.SettingError, match="finalists"):
        br.tune(pairs[0], space=SPACE, executor=executor, trials=2, finalists=3, progress=False)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_the_workers_too(pairs):
    # Of any length, whatever the validation rows say.
    long = {**SEARCH, "trials": 40, "epochs": 5000, "pilot_epochs": 1000, "patience": 1_000_000}
    timer = threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    with ProcessPoolExecutor(1) as executor:
        timer.start()
        started = time.monotonic()
        try:
            with pytest.warns(br.BrenierWarning):
                br.tune(pairs[0], space=SPACE, executor=executor, **long)
        except KeyboardInterrupt:
            pass  # before any full training
        finally:
            timer.cancel()
        # The worker is free again.
        assert executor.submit(int).result(timeout=30) == 0
    assert time.monotonic() - started < 60
