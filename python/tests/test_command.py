"""The command from the same wheel, and the same bits from both."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import brenier as br


def command(*words, folder):
    return subprocess.run([sys.executable, "-m", "brenier", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300)


def test_help_and_mistakes(tmp_path):
    shown = command("--help", folder=tmp_path)
    assert shown.returncode == 0 and "fit" in shown.stdout
    wrong = command("fit", "nowhere.csv", "--target", "x", "--out", "m.brenier", folder=tmp_path)
    assert wrong.returncode != 0 and "nowhere.csv" in wrong.stderr and "Traceback" not in wrong.stderr


def test_the_same_bits_from_python_and_the_command(tmp_path, pairs):
    train, held_out = pairs
    train.save(tmp_path / "train.npz")
    held_out.save(tmp_path / "held.npz")
    settings = ["--support", "rate=log-interval(0.1,10)", "--epochs", "4", "--feature-width", "8", "--seed", "7"]
    made = command("fit", "train.npz", "--target", "rate,shift", "--given", "rest", *settings, "--out", "m.brenier", "--quiet", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    model = br.fit(train, target=["rate", "shift"], given="rest", epochs=4, feature_width=8, seed=7, progress=False)
    assert model.to_bytes() == (tmp_path / "m.brenier").read_bytes()
    assert br.fit(tmp_path / "train.npz", target="rate,shift", given="rest", support=["rate=log-interval(0.1,10)"], epochs=4, feature_width=8, seed=7, progress=False) == model

    drawn = command("sample", "m.brenier", "--at", "a=0.3,b=1", "-n", "200", "--seed", "5", "--out", "draws.npz", "--quiet", folder=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert np.array_equal(br.Table.read(tmp_path / "draws.npz").values, model.sample({"a": 0.3, "b": 1.0}, 200, seed=5).values)

    scored = command("density", "m.brenier", "held.npz", "--out", "density.npz", folder=tmp_path)
    assert scored.returncode == 0, scored.stderr
    own = model.log_prob(held_out.values[:, :2], held_out.values[:, 2:])
    assert np.array_equal(br.Table.read(tmp_path / "density.npz")["log_density"], own)

    checked = command("check", "m.brenier", "held.npz", "--draws", "99", "--seed", "2", "--json", "check.json", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    verdict = model.check(held_out, draws=99, seed=2, progress=False)
    assert json.loads((tmp_path / "check.json").read_text()) == verdict.figures
    assert (tmp_path / "check.json").read_text() == verdict.to_json()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_the_command(tmp_path):
    import signal
    import time

    br.simulate("two-moons", n=20_000, seed=1, progress=False).save(tmp_path / "pairs.npz")
    process = subprocess.Popen([sys.executable, "-m", "brenier", "fit", "pairs.npz", "--target", "theta_1,theta_2", "--given", "rest", "--out", "m.brenier"], cwd=tmp_path, stderr=subprocess.PIPE)
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) is not None and b"stopping" in process.stderr.read()
