"""Pictures: SVG that notebooks show and that can be saved as SVG or PNG."""

from __future__ import annotations

import os
from pathlib import Path

from . import _core
from ._errors import SettingError


class Picture:
    """A figure as SVG text. Notebooks display it; :meth:`save` writes SVG or PNG."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<brenier.Picture, {len(self.svg)} characters of SVG>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Picture) and self.svg == other.svg

    def __hash__(self) -> int:
        return hash(self.svg)

    def to_png(self, dots: float = 300.0) -> bytes:
        """The figure as PNG with this many dots per inch."""
        return bytes(_core.png(self.svg, dots))

    def save(self, path: str | os.PathLike[str], dots: float = 300.0) -> None:
        """Writes the figure; the ending of the name, ``.svg`` or ``.png``, decides the format."""
        ending = Path(path).suffix.lower()
        if ending == ".svg":
            _core.write_bytes(os.fspath(path), self.svg.encode())
        elif ending == ".png":
            _core.write_bytes(os.fspath(path), self.to_png(dots))
        else:
            raise SettingError(f"{os.fspath(path)}: a picture is written as SVG or PNG: end its name in .svg or .png")
