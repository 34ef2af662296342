"""The tutorial notebook runs from top to bottom, and its code runs without Jupyter."""

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("BRENIER_NOTEBOOKS", Path(__file__).resolve().parent.parent / "notebooks"))
TUTORIAL = FOLDER / "tutorial.ipynb"


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the notebooks are not beside the tests")
def test_the_code_of_the_tutorial_runs():
    cells = json.loads(TUTORIAL.read_text())["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102
    assert names["post"].target_names == ["rate", "delay"]


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the notebooks are not beside the tests")
def test_the_tutorial_runs_in_jupyter():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(TUTORIAL, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= kinds
