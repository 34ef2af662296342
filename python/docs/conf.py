"""Sphinx: the reference of the Python package, from its docstrings.

python -m sphinx -W -b html python/docs OUT    with the package, sphinx and myst-parser installed
"""

import brenier

project = "brenier"
author = "The Brenier developers"
release = brenier.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True
nitpicky = False
html_theme = "alabaster"
html_theme_options = {"description": "Conditional optimal transport", "page_width": "1080px"}
html_title = f"brenier {release}"
