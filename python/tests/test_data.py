"""What goes in: arrays, frames, dictionaries, files; and mistakes."""

import numpy as np
import pytest

import brenier as br


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(400, 2))
    x = theta @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.3 * rng.normal(size=(400, 2))
    return theta, x


def fitted(*data, **settings):
    return br.fit(*data, method="gaussian", progress=False, **settings)


def test_the_same_model_from_every_kind_of_table(arrays, tmp_path):
    theta, x = arrays
    first = fitted(theta, x)
    assert first.target_names == ["theta_1", "theta_2"] and first.given_names == ["x_1", "x_2"]
    names = ["theta_1", "theta_2", "x_1", "x_2"]
    columns = dict(zip(names, np.hstack([theta, x]).T))
    target, given = names[:2], names[2:]
    table = br.Table(names, np.hstack([theta, x]))
    table.save(tmp_path / "pairs.npz")
    assert fitted(columns, target=target, given=given) == first
    assert fitted(table, target="theta_1,theta_2", given="rest") == first
    assert fitted(tmp_path / "pairs.npz", target=target, given="x_1..x_2") == first
    assert fitted(theta.astype(np.float64, order="F"), x) == first
    # Other columns and their order do not matter.
    assert fitted({"other": x[:, 0], **columns}, target=target, given=given) == first


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_data_frames(arrays, library):
    module = pytest.importorskip(library)
    theta, x = arrays
    columns = {"t": theta[:, 0], "u": x[:, 0], "v": x[:, 1]}
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    model = fitted(frame, target="t", given=["u", "v"])
    assert model == fitted(columns, target="t", given=["u", "v"])
    draws = model.sample(frame[:3] if library != "pyarrow" else frame.slice(0, 3), 5)
    assert draws.shape == (3, 5, 1)


def test_torch_and_jax(arrays):
    theta, x = arrays
    model = fitted(theta, x)
    torch = pytest.importorskip("torch")
    moved = torch.tensor(theta, requires_grad=True)
    assert fitted(moved, torch.tensor(x)) == model
    assert np.array_equal(model.sample(torch.tensor(x[0]), 3).values, model.sample(x[0], 3).values)


def test_categories_in_memory():
    rng = np.random.default_rng(1)
    kind = rng.choice(["red", "blue", "green"], 300)
    y = np.where(kind == "red", 2.0, np.where(kind == "blue", -1.0, 0.0)) + 0.1 * rng.normal(size=300)
    model = fitted({"y": y, "kind": kind}, target="y", given="kind", categorical=["kind"])
    assert model.given_names == ["kind=blue", "kind=green", "kind=red"]
    assert abs(model.sample({"kind": "red"}, 200).mean()[0] - 2.0) < 0.1
    with pytest.raises(br.ColumnError, match="categorical"):
        fitted({"y": y, "kind": kind}, target="y", given="kind")
    with pytest.raises(br.BrenierError, match="not a category"):
        model.sample({"kind": "black"}, 5)


def test_mistakes_are_one_sentence(arrays, posterior):
    theta, x = arrays
    cases = [
        (br.SettingError, "no such setting", lambda: fitted(theta, x, widht=3)),
        (br.ColumnError, "did you mean", lambda: fitted({"alpha": x[:, 0], "y": x[:, 1]}, target="alpa")),
        (br.SettingError, "epochs", lambda: br.fit(theta, x, epochs=0, progress=False)),
        (br.ShapeError, "as many rows", lambda: fitted(theta, x[:-1])),
        (br.ShapeError, "given columns", lambda: posterior.sample([1.0, 2.0, 3.0])),
        (br.ShapeError, "conditional on", lambda: posterior.sample()),
        (br.SettingError, "belongs to the method", lambda: br.fit(theta, x, time_steps=3, progress=False)),
        (br.FileError, "nowhere.csv", lambda: br.fit("nowhere.csv", target="x", progress=False)),
        (br.FileError, "missing.brenier", lambda: br.load("missing.brenier")),
        (br.SettingError, "choose from", lambda: br.fit(theta, x, method="spline", progress=False)),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text) as found:
            call()
        assert "\n" not in str(found.value)
    assert issubclass(br.SettingError, ValueError) and issubclass(br.FileError, OSError)
    damaged = bytearray(posterior.to_bytes())
    damaged[-1] ^= 1
    with pytest.raises(br.ModelError):
        br.Posterior.from_bytes(bytes(damaged))


def test_settings_files_and_keyword_arguments(arrays, tmp_path):
    theta, x = arrays
    path = tmp_path / "fit.toml"
    path.write_text('seed = 3\n[method]\nname = "pcp-map"\nfeature_width = 8\n[train]\nepochs = 2\n')
    model = br.fit(theta, x, config=path, progress=False)
    assert model.settings["seed"] == 3 and model.settings["method"]["feature_width"] == 8
    same = br.fit(theta, x, seed=3, epochs=2, feature_width=8, progress=False)
    assert same == model
    other = br.fit(theta, x, config=path, seed=4, weight_decay=1e-4, progress=False)
    assert other.settings["seed"] == 4 and other.settings["train"]["adam"]["weight_decay"] == 1e-4


def test_every_listed_method_fits(arrays):
    theta, x = arrays
    for method in br.methods():
        model = br.fit(theta, x, method=method["name"], epochs=1, progress=False)
        assert model.method == method["name"]
        assert np.isfinite(model.sample(x[0], 10).values).all()


def test_objects_missing_values_and_other_types(arrays):
    theta, x = arrays
    columns = {"t": theta[:, 0], "u": x[:, 0], "v": x[:, 1]}
    model = fitted(columns, target="t", given=["u", "v"])
    objects = {name: values.astype(object) for name, values in columns.items()}
    dates = np.arange(len(theta)).astype("datetime64[D]")
    # Objects that are numbers are taken as such; a column that is not chosen may hold anything.
    assert fitted({**objects, "when": dates}, target="t", given=["u", "v"]) == model
    with pytest.raises(br.ColumnError, match="datetime64"):
        fitted({**columns, "when": dates}, target="t", given=["u", "when"])
    objects["u"][3] = "oops"
    with pytest.raises(br.ColumnError, match="column \"u\" holds numbers and text, such as 'oops'"):
        fitted(objects, target="t", given=["u", "v"])
    objects["u"][3] = None
    with pytest.raises(br.TableError, match='row 4, column "u" is missing .*`drop_missing`'):
        fitted(objects, target="t", given=["u", "v"])
    assert fitted(objects, target="t", given=["v"]) == fitted(columns, target="t", given=["v"])
    masked = np.ma.masked_array(x[:, 0], mask=np.arange(len(x)) == 3)
    kept = {name: np.delete(values, 3) for name, values in columns.items()}
    expected = fitted(kept, target="t", given=["u", "v"])
    for gap in (objects["u"], masked):
        with pytest.warns(br.BrenierWarning, match="1 row with missing values left out"):
            assert fitted({**columns, "u": gap}, target="t", given=["u", "v"], drop_missing=True) == expected
    kind = np.array(["red", "blue"] * len(x))[: len(x)].astype(object)
    kind[5] = None
    with pytest.raises(br.TableError, match='row 6, column "kind" is missing'):
        fitted({**columns, "kind": kind}, target="t", given=["u", "kind"], categorical="kind")
    with pytest.raises(br.ColumnError, match='both have a column "u"'):
        fitted({"u": x[:, 0]}, {"u": x[:, 1]})


def test_mistakes_in_calls_are_one_sentence(posterior, tmp_path):
    run = lambda *arguments, **options: br.simulate(*arguments, **{"progress": False, **options})  # noqa: E731
    prior = br.Prior(p=br.uniform(0, 1))
    one = lambda theta: 1.0  # noqa: E731
    cases = [
        ("whole number", lambda: posterior.sample([0.3, 1.0], 0)),
        ("whole number", lambda: posterior.sample([0.3, 1.0], (100,))),
        ("setting x", lambda: posterior.sample([0.3, 1.0], 10, x=object())),
        ("whole number", lambda: run(one, prior)),
        ("whole number", lambda: run(one, prior, 10.5)),
        ("setting simulator", lambda: run(3, prior, 5)),
        ("setting prior", lambda: run(one, {"p": 1}, 5)),
        ("setting executor", lambda: run(one, prior, 5, executor="dask")),
        ("setting executor", lambda: run(one, prior, 5, executor=0)),
        ("setting executor", lambda: run(one, prior, 5, executor=object())),
        ("setting timeout", lambda: run(one, prior, 5, timeout=-1)),
        ("x.nonsense", lambda: run(one, prior, 5, out=tmp_path / "x.nonsense")),
        ("does not exist", lambda: run(one, prior, 5, out=tmp_path / "nowhere" / "x.csv")),
    ]
    for text, call in cases:
        with pytest.raises(br.BrenierError, match=text) as found:
            call()
        assert "\n" not in str(found.value)
    assert len(run(one, prior, 1e1)) == 10
