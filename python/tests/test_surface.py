"""The stub of the core names what the core has, and the package what it exports."""

import ast
import inspect
from pathlib import Path

import brenier
from brenier import _core


def test_the_stub_and_the_module_agree():
    stub = ast.parse((Path(brenier.__file__).parent / "_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert public == classes.keys() | functions.keys()
    for name, node in functions.items():
        own = [one.name for one in inspect.signature(getattr(_core, name)).parameters.values()]
        assert own == [argument.arg for argument in node.args.args], name
    for name, node in classes.items():
        members = {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__new__"}
        assert members == {one for one in dir(getattr(_core, name)) if not one.startswith("_")}, name


def test_everything_public_has_a_docstring():
    for name in brenier.__all__:
        value = getattr(brenier, name)
        if callable(value):
            assert inspect.getdoc(value), name
