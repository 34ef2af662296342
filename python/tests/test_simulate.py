"""Simulators: the same table whatever runs it, failures, time-outs, journals."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import brenier as br
from conftest import PRIOR, simulator


def picky(theta, seed):
    """Abandons some rows, fails in others."""
    if theta["shift"] > 2:
        return None
    if theta["shift"] < -3:
        raise ValueError("too low")
    return [theta["shift"], float("nan") if theta["rate"] > 9 else seed % 1000]


def many(theta, seeds):
    return np.column_stack([theta["rate"] * 2, (seeds % 1000).astype(float)])


def test_the_same_table_whatever_runs_it():
    alone = br.simulate(simulator, PRIOR, n=300, seed=5, progress=False)
    assert alone.names == ["rate", "shift", "a", "b"] and len(alone) == 300
    with ProcessPoolExecutor(2) as processes, ThreadPoolExecutor(3) as threads:
        for executor in ("processes", 2, processes, threads):
            assert br.simulate(simulator, PRIOR, n=300, seed=5, executor=executor, progress=False).hash() == alone.hash()
    # A longer table begins with the same rows, and parameters are prior draws.
    assert np.array_equal(br.simulate(simulator, PRIOR, n=400, seed=5, progress=False).values[:300], alone.values)
    assert np.array_equal(PRIOR.sample(300, seed=5), alone.parameters.values)


@pytest.mark.parametrize("engine", ["loky", "distributed"])
def test_other_engines(engine):
    module = pytest.importorskip(engine)
    alone = br.simulate(simulator, PRIOR, n=200, seed=5, progress=False)
    if engine == "loky":
        executor = module.get_reusable_executor(max_workers=2)
        assert br.simulate(simulator, PRIOR, n=200, seed=5, executor=executor, progress=False) == alone
        return
    with module.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, module.Client(cluster) as client:
        assert br.simulate(simulator, PRIOR, n=200, seed=5, executor=client.get_executor(), progress=False) == alone


MPI = """
import sys
import brenier as br
from mpi4py.futures import MPIPoolExecutor
from conftest import PRIOR, simulator

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        br.simulate(simulator, PRIOR, n=200, seed=5, executor=executor, progress=False).save(sys.argv[1])
"""


def test_mpi(tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', '')}")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    (tmp_path / "script.py").write_text(MPI)
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(__file__), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
    words = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(tmp_path / "script.py"), str(tmp_path / "sims.npz")]
    made = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    alone = br.simulate(simulator, PRIOR, n=200, seed=5, progress=False)
    assert br.Table.read(tmp_path / "sims.npz") == br.Table(alone.names, alone.values)


def test_abandoned_and_failed_rows():
    with pytest.warns(br.BrenierWarning, match="rows failed"):
        found = br.simulate(picky, PRIOR, n=400, seed=2, outputs=["s", "k"], progress=False)
    assert found.abandoned > 20 and found["shift"].max() <= 2
    assert {one.reason for one in found.failures} == {"ValueError: too low", "output k is nan"}
    assert len(found) + len(found.failures) == 400
    with pytest.warns(br.BrenierWarning):
        same = br.simulate(picky, PRIOR, n=400, seed=2, outputs=["s", "k"], executor=2, progress=False)
    assert same == found and same.failures == found.failures and same.abandoned == found.abandoned


def test_vectorized_simulators_and_given_parameters():
    alone = br.simulate(many, PRIOR, n=2500, seed=3, vectorized=True, outputs=["double", "k"], progress=False)
    assert np.allclose(alone["double"], 2 * alone["rate"])
    assert br.simulate(many, PRIOR, n=2500, seed=3, vectorized=True, outputs=["double", "k"], executor=2, progress=False) == alone
    fixed = br.simulate(lambda theta: theta["p"] ** 2, parameters={"p": [1.0, 2.0, 3.0]}, progress=False)
    assert fixed.values.tolist() == [[1.0, 1.0], [2.0, 4.0], [3.0, 9.0]]
    arrays = br.simulate(lambda theta: theta * 2, PRIOR, n=3, as_array=True, outputs=["u", "v"], progress=False)
    assert np.allclose(arrays.values[:, 2:], 2 * arrays.values[:, :2])


def test_time_outs():
    def slow(theta, seed):
        if theta["shift"] > 1:
            time.sleep(5)
        return 1.0

    started = time.monotonic()
    with pytest.warns(br.BrenierWarning):
        found = br.simulate(slow, PRIOR, n=10, seed=1, timeout=0.05, progress=False)
    assert time.monotonic() - started < 4 and found.failures
    assert all("longer than 0.05 s" in one.reason for one in found.failures)


def test_an_interrupted_table_continues(tmp_path):
    out = tmp_path / "sims.csv"
    calls = []

    def counting(theta, seed):
        calls.append(seed)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return {"a": theta["shift"]}

    with pytest.warns(br.BrenierWarning, match="continues"):
        part = br.simulate(counting, PRIOR, n=100, seed=1, out=out, progress=False)
    assert 0 < len(part) < 100 and not out.exists()
    before = len(part)
    whole = br.simulate(counting, PRIOR, n=100, seed=1, out=out, progress=False)
    assert len(whole) == 100 and len(calls) == 60 + 100 - before
    assert br.Table.read(out).names == whole.names and not os.path.exists(f"{out}.journal")
    assert np.array_equal(whole.values[:before], part.values)
    # A torn journal loses its last record alone; one of another run is refused.
    with pytest.warns(br.BrenierWarning):
        calls.clear()
        br.simulate(counting, PRIOR, n=100, seed=1, out=out, progress=False)
    journal = f"{out}.journal"
    with open(journal, "ab") as file:
        file.write(b"torn")
    assert br.simulate(counting, PRIOR, n=100, seed=1, out=out, progress=False) == whole
    with pytest.warns(br.BrenierWarning):
        calls.clear()
        br.simulate(counting, PRIOR, n=100, seed=1, out=out, progress=False)
    with pytest.raises(br.BrenierError, match="another simulation"):
        br.simulate(counting, PRIOR, n=100, seed=2, out=out, progress=False)


def test_the_tasks_of_an_array_make_the_same_table(tmp_path, monkeypatch):
    whole = tmp_path / "whole.csv"
    br.simulate(simulator, PRIOR, n=101, seed=3, out=whole, progress=False)
    parts = []
    for task in range(3):
        for name, value in (("ID", task), ("COUNT", 3), ("MIN", 0), ("MAX", 2), ("STEP", 1)):
            monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
        parts.append(str(tmp_path / f"{task}.csv"))
        br.simulate(simulator, PRIOR, n=101, seed=3, out=parts[-1], shard="slurm", progress=False)
    merged = tmp_path / "merged.csv"
    subprocess.run([sys.executable, "-m", "brenier", "simulate", "--merge", *parts, "--out", str(merged)], check=True)
    assert merged.read_bytes() == whole.read_bytes()
    sums = lambda theta, seeds: {"s": theta["shift"] + theta["shift"].sum()}  # noqa: E731
    blocks = [br.simulate(sums, PRIOR, n=2500, vectorized=True, shard=f"{part}/2", progress=False).values for part in (1, 2)]
    assert np.array_equal(np.vstack(blocks), br.simulate(sums, PRIOR, n=2500, vectorized=True, progress=False).values)
    for wrong in ("3/2", "half", "3/4000"):
        with pytest.raises(br.SettingError):
            br.simulate(simulator, PRIOR, n=100, shard=wrong, progress=False)


def test_a_killed_worker_loses_no_row(tmp_path):
    marker = tmp_path / "killed"

    def deadly(theta, seed):
        if seed % 7 == 0 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"k": float(seed % 1000)}

    found = br.simulate(deadly, PRIOR, n=200, seed=4, executor=2, progress=False)
    assert marker.exists() and len(found) == 200 and not found.failures
    assert np.array_equal(found.parameters.values, PRIOR.sample(200, seed=4))


def deadly_once(theta, seed):
    """Kills its worker the first time that a row of some kind comes."""
    marker = os.environ["BRENIER_TEST_MARKER"]
    if seed % 7 == 0 and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"k": float(seed % 1000)}


@pytest.mark.parametrize("engine", ["processes", "loky", "distributed"])
def test_a_killed_worker_of_an_executor_loses_no_row(engine, tmp_path, monkeypatch):
    module = None if engine == "processes" else pytest.importorskip(engine)
    monkeypatch.setenv("BRENIER_TEST_MARKER", str(tmp_path / "killed"))
    if engine == "distributed":
        with module.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, module.Client(cluster) as client:
            found = br.simulate(deadly_once, PRIOR, n=200, seed=4, executor=client.get_executor(), progress=False)
    else:
        executor = ProcessPoolExecutor(2) if engine == "processes" else module.get_reusable_executor(max_workers=2, reuse=False)
        with pytest.warns(br.BrenierWarning, match="the executor broke"):
            found = br.simulate(deadly_once, PRIOR, n=200, seed=4, executor=executor, progress=False)
        executor.shutdown(wait=False)
    assert (tmp_path / "killed").exists() and len(found) == 200 and not found.failures
    assert np.array_equal(found.parameters.values, PRIOR.sample(200, seed=4))


def test_hopeless_simulators_end_early():
    def broken(theta, seed):
        raise RuntimeError("no licence")

    with pytest.raises(br.DomainError, match="no licence"):
        br.simulate(broken, PRIOR, n=100_000, progress=False)


def test_built_in_models():
    table = br.simulate("two-moons", n=50, seed=1, progress=False)
    assert len(table) == 50 and table.names[:2] == ["theta_1", "theta_2"]


def test_priors():
    prior = br.Prior(
        br.multivariate_normal(["a", "b"], [0, 0], [[1, 0.5], [0.5, 1]]), p=br.beta(2, 3), k=br.truncated_normal(0, 1, low=-1)
    )
    assert prior.names == ["a", "b", "p", "k"] and prior.supports["p"] == "interval(0,1)"
    rows = prior.sample(2000)
    assert rows.shape == (2000, 4) and abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1] - 0.5) < 0.1
    normal = br.Prior(x=br.normal(1, 2))
    assert np.isclose(normal.log_prob([1.0]), -np.log(2 * np.sqrt(2 * np.pi)))
    flat = br.Prior(r=br.log_uniform(1, np.e))
    assert np.allclose(flat.log_prob([[1.5], [2.0], [5.0]]), [-np.log(1.5), -np.log(2.0), -np.inf])
    with pytest.raises(br.SettingError, match="must be a distribution"):
        br.Prior(x=3)
    with pytest.raises(br.SettingError, match="low"):
        br.Prior(x=br.uniform(2, 1))
