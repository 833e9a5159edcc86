"""How Sphinx builds the documentation: `make docs`."""

from docutils import nodes
from sphinx.addnodes import pending_xref

project = "fullpipe"
author = "The fullpipe authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns: list[str] = []

# Pages are Markdown that code hosts show, too; headings are targets of links (`page.md#a-heading`).
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# `json` blocks have placeholders.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_default_options = {"members": True, "show-inheritance": True}
# In docstrings, `x` is code; as text, dashes and quotation marks in it would be changed.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

# The theme loads neither fonts nor scripts from elsewhere.
html_theme = "furo"
html_title = "fullpipe"
html_show_sphinx = False
html_copy_source = False


def bars_are_text(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keeps |x| in docstrings an absolute value; reStructuredText would take it for a substitution."""
    lines[:] = [line.replace("|", r"\|") if "``" not in line else line for line in lines]


def types_are_no_fields(app: object, doctree: nodes.document) -> None:
    """Leaves the type `bytes` without a link: Sphinx would take it for a field of that name."""
    for reference in list(doctree.findall(pending_xref)):
        if reference["refdomain"] == "py" and reference["reftarget"] == "bytes":
            reference.replace_self(reference.children)


def setup(app) -> None:  # type: ignore[no-untyped-def]
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", bars_are_text, priority=900)
    app.connect("doctree-read", types_are_no_fields)
