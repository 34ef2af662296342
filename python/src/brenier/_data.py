"""Tables from whatever holds numbers: arrays, data frames, dictionaries, files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._errors import ColumnError, ShapeError

Floats = NDArray[np.float64]
#: Names of columns: a list, or a selection as in ``"x1,x2"``, ``"x1..x4"``, ``"#1..#3"`` or ``"rest"``.
Columns = Union[str, Sequence[str]]


def is_path(data: Any) -> bool:
    """Whether data names a file."""
    return isinstance(data, (str, os.PathLike))


def is_missing(value: Any) -> bool:
    """Whether an object of a column stands for a missing value: None, NaN, pandas' NA and NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)


def _numbers(array: NDArray[Any]) -> Floats | None:
    """Objects as numbers, NaN for those that are missing; None where one is neither."""
    found = np.empty(array.shape)
    for place, value in enumerate(array.flat):
        if isinstance(value, (str, bytes)):
            return None
        try:
            found.flat[place] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError):
            return None
    return found


def to_array(values: Any, what: str = "values") -> NDArray[Any]:
    """An array of anything that NumPy, ``__array__`` or ``__dlpack__`` can give one of; objects that are numbers become such."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # torch, with or without gradient and device
        values = values.detach().cpu()
        if hasattr(values, "to_dense"):
            values = values.to_dense()
        if str(getattr(values, "dtype", "")) == "torch.bfloat16":  # NumPy has none
            values = values.float()
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        values = np.where(np.ma.getmaskarray(values), np.nan, values.data)
    if not hasattr(values, "__array__") and hasattr(values, "__dlpack__"):
        return np.from_dlpack(values)
    try:
        array = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(f"{what}: expected numbers in rows of equal length ({str(error).splitlines()[0]})") from None
    if array.dtype == object:
        numbers = _numbers(array)
        return array if numbers is None else numbers
    return array


def to_floats(values: Any, what: str = "values") -> Floats:
    """An array of double precision."""
    array = to_array(values, what)
    if array.dtype.kind not in "biuf":
        raise ShapeError(f"{what}: expected numbers, got {_holds(array)}")
    return np.ascontiguousarray(array, dtype=np.float64)


def _holds(array: NDArray[Any]) -> str:
    """What an array holds that is no array of numbers, in words."""
    if array.dtype.kind in "UST":
        return "text"
    if array.dtype.kind == "V" and array.dtype.names:
        return "an array of records: pass a dictionary of its fields"
    if array.dtype != object:
        return str(array.dtype)
    texts = next((value for value in array.flat if isinstance(value, (str, bytes))), None)
    others = next((value for value in array.flat if not isinstance(value, (str, bytes)) and not is_missing(value)), None)
    if texts is None:
        return f"a value of the type {type(others).__name__}"
    return "text" if others is None else f"numbers and text, such as {texts!r}"


def quoted(name: str) -> str:
    """A column's name as a selection must have it."""
    return '"' + name.replace('"', '""') + '"'


def selection(columns: Columns) -> str:
    """The text of a selection."""
    if isinstance(columns, str):
        return columns
    return ",".join(quoted(str(name)) for name in columns)


def columns_of(data: Any) -> list[tuple[str, NDArray[Any]]] | None:
    """Named columns of a data frame, a dictionary or one of our tables; None for a plain array."""
    if isinstance(data, Table):
        return [(name, data.values[:, j]) for j, name in enumerate(data.names)]
    if isinstance(data, Mapping):
        return [(str(name), np.atleast_1d(to_array(values, str(name)))) for name, values in data.items()]
    if hasattr(data, "column_names") and hasattr(data, "column"):  # pyarrow
        return [(str(name), to_array(data.column(j), str(name))) for j, name in enumerate(data.column_names)]
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # polars, lazy
        data = data.collect()
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):  # pandas, polars
        names = [str(name) for name in data.columns]
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            raise ColumnError(f'two columns are called "{twice[0]}": rename one')
        return [(name, to_array(data[own].to_numpy(), name)) for name, own in zip(names, data.columns)]
    if hasattr(data, "data_vars"):  # xarray
        return [(str(name), to_array(values, str(name))) for name, values in data.data_vars.items()]
    return None


def _codes(values: NDArray[Any]) -> tuple[Floats, list[str]]:
    """Positions of texts, NaN for those that are missing, and the texts."""
    missing = np.array([is_missing(value) for value in values.tolist()], dtype=bool)
    texts = np.array(["" if gone else value.decode() if isinstance(value, bytes) else str(value) for value, gone in zip(values.tolist(), missing)], dtype=str)
    levels, places = np.unique(texts, return_inverse=True)
    return np.where(missing, np.nan, places), [str(level) for level in levels]


def core_table(data: Any, default: str = "x") -> _core.Table:
    """The table of the core for data in memory. Columns that hold neither numbers nor text may be in it, but not chosen."""
    if isinstance(data, _core.Table):
        return data
    named = columns_of(data)
    if named is None:
        array = to_floats(data, "table")
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise ShapeError(f"table: expected rows and columns, got an array of {array.ndim} axes")
        named = [(f"{default}_{j + 1}", array[:, j]) for j in range(array.shape[1])]
    if not named:
        raise ColumnError("the table has no columns")
    lengths = {len(values) for _, values in named}
    if len(lengths) != 1 or any(values.ndim != 1 for _, values in named):
        shapes = ", ".join(f"{name} {values.shape}" for name, values in named[:6])
        raise ShapeError(f"table: expected columns of equal length, got {shapes}")
    columns: list[Floats] = []
    texts: list[tuple[int, list[str]]] = []
    refused: list[tuple[int, str]] = []
    for j, (_, values) in enumerate(named):
        if values.dtype.kind in "biuf":
            columns.append(values.astype(np.float64))
        elif (holds := _holds(values)) == "text":
            codes, levels = _codes(values)
            columns.append(codes)
            texts.append((j, levels))
        else:
            columns.append(np.zeros(len(values)))
            refused.append((j, f"holds {holds}: expected numbers, or text that is named in `categorical`"))
    return _core.Table([name for name, _ in named], np.ascontiguousarray(np.column_stack(columns)), texts, refused)


def source(data: Any, default: str = "x") -> Any:
    """What the core reads rows from: a path, or a table in memory."""
    return os.fspath(data) if is_path(data) else core_table(data, default)


class Table:
    """Named columns of numbers: ``table["x"]``, ``table.values``, ``np.asarray(table)``."""

    def __init__(self, names: Sequence[str], values: Any) -> None:
        self.names = [str(name) for name in names]
        self.values = to_floats(values, "table")
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ShapeError(f"table: expected {len(self.names)} columns, got an array of shape {self.values.shape}")

    @staticmethod
    def read(path: str | os.PathLike[str], drop_missing: bool = False) -> "Table":
        """Reads a file of numbers: CSV, TSV, Parquet, Arrow, ``.npy`` or ``.npz``."""
        table = _core.Table.read(os.fspath(path), drop_missing)
        return Table(table.names, table.to_numpy())

    @property
    def columns(self) -> list[str]:
        """The names, as data frames call them."""
        return self.names

    def to_numpy(self) -> Floats:
        """The values."""
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise ColumnError(f'there is no column "{key}" among {", ".join(self.names)}')
            return self.values[:, self.names.index(key)]
        if isinstance(key, list) and all(isinstance(name, str) for name in key):
            return Table(key, np.column_stack([self[name] for name in key]))
        return self._with_rows(np.atleast_2d(self.values[key]))

    def _with_rows(self, values: Floats) -> "Table":
        return Table(self.names, values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.names == other.names and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<brenier.{type(self).__name__}, {len(self)} rows of {', '.join(self.names[:8])}{', …' if len(self.names) > 8 else ''}>"

    def split(self, fraction: float = 0.9, seed: int = 0) -> tuple["Table", "Table"]:
        """Two tables of random rows: about ``fraction`` of them, and the rest."""
        first, second = _core.split_rows(len(self), fraction, seed)
        return self._with_rows(self.values[first]), self._with_rows(self.values[second])

    def hash(self) -> str:
        """SHA-256 of names, shape and values: equal for equal tables on every machine."""
        return core_table(self).hash()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table; the ending of the name decides the format."""
        core_table(self).write(os.fspath(path))

    def to_dataframe(self) -> Any:
        """The table as a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.values, columns=self.names)
