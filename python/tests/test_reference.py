"""The evaluator in NumPy agrees with Rust to 1e-10 in double precision: every method, every transform."""

import hashlib
import json
import struct
import tempfile
from pathlib import Path

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
SMALL = dict(epochs=2, feature_width=6)
CASES = {
    "pcp-map": dict(method="pcp-map", epochs=3, feature_width=8),
    "pcp-map, softplus output, deep": dict(method="pcp-map", depth=3, output_activation="softplus", **SMALL),
    "pcp-map, pca and robust scaling": dict(method="pcp-map", pca=2, scaling="robust", **SMALL),
    "pcp-map, reduced": dict(method="pcp-map", reduce=2, **SMALL),
    "pcp-map, whitened": dict(method="pcp-map", whiten="target", **SMALL),
    "pcp-map, heavy tails": dict(method="pcp-map", reference="heavy-tailed", **SMALL),
    "pcp-map, affine front and heavy tails": dict(method="pcp-map", reference="heavy-tailed", front="affine", depth=3, **SMALL),
    "pcp-map, affine front": dict(method="pcp-map", front="affine", **SMALL),
    "pcp-map, noise and jitter": dict(method="pcp-map", noise="y1=0.1", jitter="y3=0.05", **SMALL),
    "pcp-map, noise and surrogate": dict(method="pcp-map", noise="y1=0.1", surrogate=0.2, surrogate_widths=[8], **SMALL),
    "pcp-map, noise, reduced, whitened": dict(method="pcp-map", front="affine", noise="y1=0.1", reduce=2, whiten="target", **SMALL),
    "npe, two exchangeable points": dict(method="npe", exchangeable=["y1,y3:2:2"], epochs=2, hidden_width=6, transforms=2),
    "cot-flow": dict(method="cot-flow", epochs=2, feature_width=8),
    "cot-flow, embedded": dict(method="cot-flow", depth=3, embedding=[5, 2], **SMALL),
    "gaussian": dict(method="gaussian"),
    "gaussian, log-affine": dict(method="gaussian", covariance="log-affine"),
    "npe, splines": dict(method="npe", epochs=2, hidden_width=8, transforms=3),
    "npe, splines, embedded and whitened": dict(method="npe", epochs=2, hidden_width=6, transforms=2, blocks=1, bins=5, embedding=[4, 2], whiten="target"),
    "npe, masked": dict(method="npe", flow="maf", epochs=2, hidden_width=9, transforms=3, permutation_seed=7),
    "npe, masked, embedded": dict(method="npe", flow="maf", epochs=2, hidden_width=6, transforms=2, blocks=1, embedding=[4, 2], pca=2),
    "npe, masked, embedded by ReLUs": dict(method="npe", flow="maf", epochs=2, hidden_width=6, transforms=2, embedding=[7, 5, 2], embedding_activation="relu"),
    "npe, splines, embedded by ELUs": dict(method="npe", epochs=2, hidden_width=6, transforms=2, embedding=[7, 5, 2], embedding_activation="elu"),
    "npe, splines, affine front": dict(method="npe", front="affine", epochs=2, hidden_width=6, transforms=2),
    "npe, masked, embedded by ReLUs, affine front": dict(method="npe", flow="maf", front="affine", epochs=2, hidden_width=6, transforms=1, embedding=[5, 2], embedding_activation="relu"),
    "npe, autoregressive front": dict(method="npe", front="autoregressive", front_width=5, epochs=2, hidden_width=6, transforms=2, scaling="common"),
    "npe, masked, embedded, autoregressive front": dict(method="npe", flow="maf", front="autoregressive", front_width=4, epochs=2, hidden_width=6, transforms=1, embedding=[4, 3]),
    "flow-matching": dict(method="flow-matching", max_steps=400, learning_rate=0.01, feature_width=16, blocks=2),
    "flow-matching, embedded and whitened": dict(method="flow-matching", max_steps=400, learning_rate=0.01, feature_width=12, blocks=1, embedding=[5, 2], evaluation_steps=7, whiten="target"),
    "cp-flow": dict(method="cp-flow", **SMALL),
    "cp-flow, two blocks": dict(method="cp-flow", blocks=2, depth=2, **SMALL),
    "atm": dict(method="atm", max_terms=8, folds=2),
    "ensemble": dict(method="gaussian", members=3),
    "ensemble of pcp-maps": dict(method="pcp-map", members=2, **SMALL),
    "ensemble of pcp-maps, heavy tails": dict(method="pcp-map", reference="heavy-tailed", members=2, **SMALL),
    "ensemble of flows": dict(method="npe", members=2, epochs=1, hidden_width=6, transforms=2),
}


@pytest.fixture(scope="module")
def data():
    return table()


def table_of(name, data):
    """The table of a case. Flow matching starts at the identity and stays there unless targets follow the given columns closely."""
    if CASES[name]["method"] != "flow-matching":
        return data
    return {**data, "free": data["y1"] + 0.1 * data["free"], "positive": data["y2"] * data["positive"] ** 0.2}


def fit_and_read(data, tmp_path, target=TARGET, given=GIVEN, **settings):
    support = {name: text for name, text in SUPPORT.items() if name in [*target, *given]}
    model = br.fit(data, target=target, given=given, support=support, progress=False, **settings)
    model.save(tmp_path / "model.brenier")
    return model, reference.read(tmp_path / "model.brenier")


def close(own, other, part=1e-10):
    """Whether arrays agree to a part of the largest number, or of 1."""
    return not own.size or np.abs(own - other).max() < part * max(1.0, np.abs(other).max())


def rows(data, names, count=40):
    return np.column_stack([data[name] for name in names])[:count]


def reference_points(count, columns, seed):
    """z of the draws x = g(z; y) of a seed, the same for every model of as many target columns; from a Gaussian, pulled back."""
    plain = br.fit(RNG.normal(size=(50, columns)), target="rest", method="gaussian", progress=False)
    with tempfile.TemporaryDirectory() as folder:
        plain.save(f"{folder}/plain.brenier")
        return reference.read(f"{folder}/plain.brenier").pull(plain.sample(None, count, seed=seed).values)


def test_every_method_is_known():
    assert set(reference.METHODS) == {method["name"] for method in br.methods()}


@pytest.mark.parametrize("name", CASES)
def test_densities_gradients_and_draws_agree(name, data, tmp_path):
    data = table_of(name, data)
    model, own = fit_and_read(data, tmp_path, **CASES[name])
    x, y = rows(data, TARGET), rows(data, GIVEN)
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(own.log_prob(x, y), density)
    assert close(own.gradient(x, y), gradient)
    if CASES[name]["method"] == "flow-matching":
        assert np.any(own.maps[0].p["V"]), "the map is the identity and tells nothing"
    outside = x.copy()
    outside[0, 2] = 1.5
    assert own.log_prob(outside, y)[0] == -np.inf
    assert own.sample(y[0], 25).shape == (25, 4)
    if len(own.maps) > 1:
        return
    z, at = reference_points(30, 4, seed=3), np.repeat(y[:1], 30, axis=0)
    exactly = {
        "tolerance": ("pcp-map", "cp-flow", "atm"),
        # Flows along a field draw in single precision by default.
        "precision": ("cot-flow", "flow-matching"),
    }
    values = {"tolerance": 1e-12, "precision": "double"}
    settings = {key: values[key] for key, methods in exactly.items() if CASES[name]["method"] in methods}
    drawn = model.sample(y[0], 30, seed=3, **settings).values
    if getattr(own.maps[0], "tail", None):
        # Some z are stretched, each by a number of its own. Far out, a draw at a bound has lost digits of one of its entries.
        pulled = own.pull(drawn, at)
        stretch = np.median(pulled / z, axis=1, keepdims=True)
        assert stretch.min() > 0 and close(pulled, stretch * z, 1e-4)
        far = np.abs(stretch[:, 0] - 1) > 1e-6
        assert far.mean() < 0.5 and close(own.push(stretch * z, at)[far], drawn[far], 1e-6)
        z, at, drawn = z[~far], at[~far], drawn[~far]
    assert close(own.push(z, at), drawn)


def test_one_target_column_and_joint_models(data, tmp_path):
    for flow in ("nsf", "maf"):
        model, own = fit_and_read(data, tmp_path, ["positive"], ["y1", "y2"], method="npe", flow=flow, joint=True, epochs=2, hidden_width=6, transforms=2)
        x, y = rows(data, ["positive"]), rows(data, ["y1", "y2"])
        density, gradient = model.log_prob(x, y, grad=True)
        assert close(own.log_prob(x, y), density) and close(own.gradient(x, y), gradient)
        assert close(own.marginal.log_prob(y), model.marginal.log_prob(y))


@pytest.mark.parametrize("method", ["npe", "gaussian", "pcp-map"])
def test_points_in_no_particular_order(method, tmp_path):
    points = RNG.normal(size=(N, 8))
    data = {"x": points.mean(axis=1) + 0.3 * RNG.normal(size=N), "s": np.exp(points.std(axis=1))}
    data |= {f"p{j + 1}": points[:, j] for j in range(8)}
    own = {} if method == "gaussian" else dict(epochs=1)
    model = br.fit(data, target="x,s", given="p1..p8", support={"s": "log"}, exchangeable=["p1..p8:4"], whiten="target", method=method, progress=False, **own)
    model.save(tmp_path / "model.brenier")
    plain = reference.read(tmp_path / "model.brenier")
    x, y = rows(data, ["x", "s"]), points[:40]
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(plain.log_prob(x, y), density) and close(plain.gradient(x, y), gradient)
    assert np.array_equal(model.log_prob(x, y[:, [4, 5, 0, 1, 6, 7, 2, 3]]), density)


def test_columns_that_span_orders_of_magnitude(tmp_path):
    # A continuous column in place of which the map sees its asinh, counts beside which it does, and one that stays as it is.
    x = RNG.normal(size=N)
    data = {"x": x, "steep": np.exp(3 * x + 0.3 * RNG.normal(size=N)), "plain": x + RNG.normal(size=N)}
    data["counts"] = np.floor(np.exp(2 * x))
    model = br.fit(data, target="x", given="steep,plain,counts", method="gaussian", progress=False)
    model.save(tmp_path / "model.brenier")
    plain = reference.read(tmp_path / "model.brenier")
    assert [(one["column"], one["beside"]) for one in plain.asinh] == [(0, False), (2, True)]
    x, y = rows(data, ["x"]), rows(data, ["steep", "plain", "counts"])
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(plain.log_prob(x, y), density) and close(plain.gradient(x, y), gradient)
    by_name = br.fit(data, target="x", given="steep,plain", asinh="plain", method="gaussian", progress=False)
    none = br.fit(data, target="x", given="steep,plain", asinh="none", method="gaussian", progress=False)
    assert model.log_prob(x, y).mean() > none.log_prob(x, y[:, :2]).mean() + 0.5
    assert not np.array_equal(by_name.log_prob(x, y[:, :2]), none.log_prob(x, y[:, :2]))


@pytest.mark.parametrize("unconditional", ["full", "augmented", "partial"])
def test_unconditional_networks(unconditional, data, tmp_path):
    model, own = fit_and_read(data, tmp_path, ["free", "positive"], ["y1"], joint=True, unconditional=unconditional, epochs=2, feature_width=7)
    x, y = rows(data, ["free", "positive"]), rows(data, ["y1"])
    assert close(own.log_prob(x, y), model.log_prob(x, y))
    assert close(own.marginal.log_prob(y), model.marginal.log_prob(y))


def with_document(path, change):
    """Writes the model file anew after ``change`` has altered its header document."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    meta = header["__metadata__"]
    document = json.loads(meta["brenier"])
    change(document)
    meta["brenier"] = json.dumps(document)
    meta["header_sha256"] = hashlib.sha256(meta["brenier"].encode()).hexdigest()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("link", ["straight", "probit", "logit"])
def test_links_of_older_files(link, data, tmp_path):
    """New fits have the straight link for intervals. Older files have the probit, or the logit, which they do not name."""

    def relink(document):
        for column in document["target_transform"]["columns"] + document["given_transform"]["columns"]:
            if "interval" not in column["support"]:
                continue
            assert column["link"] == "straight"
            if link == "logit":
                del column["link"]
            else:
                column["link"] = link

    path = tmp_path / "model.brenier"
    support = {**SUPPORT, "y2": "log-interval(1e-3,1e3)", "y3": "interval(-20,20)"}
    fresh = br.fit(data, target=TARGET, given=GIVEN, support=support, method="gaussian", progress=False)
    fresh.save(path)
    x, y = rows(data, TARGET), rows(data, GIVEN)
    z, at = reference_points(30, 4, seed=3), np.repeat(y[:1], 30, axis=0)
    with_document(path, relink)
    model, own = br.load(path), reference.read(path)
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(own.log_prob(x, y), density) and close(own.gradient(x, y), gradient)
    assert close(own.push(z, at), model.sample(y[0], 30, seed=3).values)
    assert np.array_equal(density, fresh.log_prob(x, y)) == (link == "straight"), "the file's link is not the one that was read"


def test_categories(data, tmp_path):
    """A column of categories stands for columns ``name=level``, 1 for the row's own level and 0 for the others."""
    kind = np.array(["low", "middle", "high"])[np.digitize(data["y1"], [-0.5, 0.5])]
    frame = {"free": data["free"], "share": data["share"], "y2": data["y2"], "kind": kind}
    given = {"y2": frame["y2"][:40], "kind": kind[:40]}
    z = reference_points(1, 2, seed=3)
    for settings in (dict(method="gaussian"), dict(method="npe", epochs=2, hidden_width=6, transforms=2)):
        model = br.fit(frame, target="free,share", given="y2,kind", categorical=["kind"], support={"share": "interval(0,1)", "y2": "log"}, progress=False, **settings)
        model.save(tmp_path / "model.brenier")
        own = reference.read(tmp_path / "model.brenier")
        (encoding,) = own.document["encoding"]
        assert encoding["name"] == "kind" and sorted(encoding["levels"]) == ["high", "low", "middle"]
        columns = {"y2": given["y2"]} | {f"kind={level}": (given["kind"] == level).astype(float) for level in encoding["levels"]}
        x, y = rows(frame, ["free", "share"]), np.column_stack([columns[name] for name in own.given_names])
        density, gradient = model.log_prob(x, given, grad=True)
        assert close(own.log_prob(x, y), density) and close(own.gradient(x, y), gradient)
        assert close(own.push(z, y[:1]), model.sample({"y2": given["y2"][0], "kind": kind[0]}, 1, seed=3).values)


VERSION_1 = Path(__file__).resolve().parent / "version-1"


@pytest.mark.parametrize("name", ["pcp-map", "cot-flow"])
def test_models_of_version_1(name):
    """Written by Brenier 0.1, with its draws at an observation and their densities; an interval's link is the logit."""
    path = VERSION_1 / f"{name}.brenier"
    model, own = br.load(path), reference.read(path)
    written = np.loadtxt(VERSION_1 / f"{name}.csv", delimiter=",", skiprows=1)
    written = written[written[:, 0] == 1]
    z = reference_points(len(written), 2, seed=1)
    y = [2.2724203545588777, -0.7863958459153001, -2.6006641642637662, -0.08673237453624494]
    y = np.repeat([y if name == "pcp-map" else [-1.0622360506440782, *y]], len(written), axis=0)
    x = written[:, 1:3]
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(own.log_prob(x, y), density) and close(own.gradient(x, y), gradient)
    assert close(own.log_prob(x, y), written[:, 3])
    assert close(own.push(z, y), x, 1e-5)
    assert (own.marginal is not None) == (name == "pcp-map")
    if own.marginal:
        assert close(own.marginal.log_prob(y), model.marginal.log_prob(y))


JAX_CASES = ["pcp-map, whitened", "pcp-map, heavy tails", "cot-flow, embedded", "gaussian", "npe, splines", "npe, masked", "npe, masked, embedded by ReLUs, affine front", "flow-matching", "cp-flow", "atm", "ensemble of flows"]


@pytest.mark.parametrize("name", JAX_CASES)
def test_it_runs_under_jax(name, data, tmp_path):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    data = table_of(name, data)
    model, _ = fit_and_read(data, tmp_path, **CASES[name])
    own = reference.read(tmp_path / "model.brenier", jax.numpy)
    x, y = rows(data, TARGET, 10), rows(data, GIVEN, 10)
    density, gradient = model.log_prob(x, y, grad=True)
    assert close(np.asarray(own.log_prob(x, y)), density)
    found = jax.grad(lambda x: own.log_prob(x, y).sum())(jax.numpy.asarray(x))
    assert close(np.asarray(found), gradient, 1e-9)
