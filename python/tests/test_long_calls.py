"""Ctrl-C, threads, fork, and what the package costs to import."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import brenier as br


def interrupt_after(seconds):
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_ctrl_c_returns_the_best_model():
    table = br.simulate("two-moons", n=20_000, seed=1, progress=False)
    seen = []
    sent = []

    def watch(snapshot):
        seen.append(snapshot)
        if not sent and "valid_nll" in snapshot:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(br.BrenierWarning, match="best model so far"):
        model = br.fit(table, target="theta_1,theta_2", given="rest", minutes=5, progress=watch)
    assert time.monotonic() - sent[0] < 30
    assert model.training["stop"] == "interrupted"
    assert np.isfinite(model.log_prob(table.values[0, :2], table.values[0, 2:]))


def test_progress_of_members_and_trials():
    table = br.simulate("two-moons", n=4000, seed=1, progress=False)
    seen = []
    model = br.fit(table, target="theta_1,theta_2", given="rest", epochs=3, members=2, progress=seen.append)
    assert len(model.header["choice"]["trials"]) > 3
    assert any("trial" in shot["line"] for shot in seen) and any("member" in shot["line"] for shot in seen)
    assert any(0 < shot["part"] < 1 and shot["of"] >= 2 and "valid_nll" in shot for shot in seen if "number" in shot)
    assert br.fit(table, target="theta_1,theta_2", given="rest", epochs=1, quick=True, progress=False).method == "pcp-map"
    with pytest.raises(br.SettingError, match="quick"):
        br.fit(table, target="theta_1,theta_2", given="rest", quick=True, method="npe", progress=False)


def test_a_second_ctrl_c_raises():
    table = br.simulate("two-moons", n=20_000, seed=1, progress=False)
    count = []

    def watch(snapshot):
        count.append(0)
        if len(count) in (3, 4):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        # The first asks to stop, the second, within the same tenth of a second, gives up.
        br.fit(table, target="theta_1,theta_2", given="rest", minutes=1, members=4, progress=watch)


def test_ctrl_c_ends_draws_and_comparisons(posterior):
    rows = np.random.default_rng(0).normal(size=(20_000, 4))
    for call in (lambda: posterior.sample([0.3, 1.0], 5_000_000), lambda: br.compare(rows[:10_000], rows[10_000:])):
        timer = interrupt_after(0.3)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call()
        timer.join()
        assert time.monotonic() - started < 30


def _child(model, queue):
    queue.put(float(model.sample([0.3, 1.0], 50, seed=1).mean()[0]))
    rng = np.random.default_rng(0)
    other = br.fit(rng.normal(size=(200, 1)), rng.normal(size=(200, 1)), epochs=1, feature_width=4, progress=False)
    queue.put(other.method)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
def test_fork_after_a_fit(posterior):
    expected = float(posterior.sample([0.3, 1.0], 50, seed=1).mean()[0])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(posterior, queue))
    child.start()
    assert queue.get(timeout=60) == expected
    assert queue.get(timeout=60) == "pcp-map"
    child.join(30)
    assert child.exitcode == 0


def test_other_threads_run_while_a_fit_does(pairs):
    ticks, ended = [], threading.Event()

    def tick():
        while not ended.is_set():
            ticks.append(0)
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.monotonic()
    br.fit(pairs[0], epochs=60, feature_width=32, progress=False)
    seconds = time.monotonic() - started
    ended.set()
    thread.join()
    assert len(ticks) > 10 * seconds


def test_the_number_of_threads_changes_no_bit(pairs):
    model = br.fit(pairs[0], epochs=3, feature_width=8, progress=False)
    br.set_threads(1)
    try:
        assert br.threads() == 1
        assert br.fit(pairs[0], epochs=3, feature_width=8, progress=False) == model
    finally:
        br.set_threads(0)


def test_import_is_quick_and_needs_numpy_alone():
    # Processor time: that of the clock says more about what else the machine does.
    code = (
        "import time, sys, numpy; t = time.process_time(); import brenier; seconds = time.process_time() - t;"
        "print(seconds, [m for m in ('torch', 'pandas', 'arviz', 'sbi', 'IPython', 'jax', 'multiprocessing.connection') if m in sys.modules])"
    )
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(" ", 1) for _ in range(5)]
    assert {modules.strip() for _, modules in found} == {"[]"}
    assert min(float(seconds) for seconds, _ in found) < 0.1
