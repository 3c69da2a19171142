"""The Sphinx extension: expands the source of pages, and links the names of options.

A span of code that names an option, such as ``[manager] workers``, becomes a link to it.
"""

from typing import ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from docs.extension import options, pages


class OptionLinks(SphinxTransform):
    """Wraps the names of options in references to the reference of options."""

    default_priority = 500
    known: ClassVar[frozenset[str]] = frozenset(options.names())

    def apply(self) -> None:
        """Change the document."""
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            if name in self.known and not isinstance(literal.parent, nodes.reference):
                link = addnodes.pending_xref(
                    "",
                    refdomain="std",
                    reftype="confval",
                    reftarget=name,
                    refexplicit=True,
                    refwarn=True,
                )
                literal.replace_self(link)
                link += literal


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension; Sphinx calls this function."""
    app.connect("source-read", _on_source_read)
    app.add_transform(OptionLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _on_source_read(_app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = pages.expand(f"{docname}.md", source[0])
