"""How Sphinx builds the documentation site: ``make docs``."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that docs.extension can be imported

project = "climate"
author = "the climate developers"
version = release = installed_version("climate")
extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "docs.extension.sphinx_extension",
]
exclude_patterns = ["extension", "evidence/performance-summary.md"]  # performance.md includes it
templates_path: list[str] = []
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# The theme and the extensions ship all their files: the pages send no request to other hosts.
html_theme = "furo"
html_title = "climate"
html_static_path = ["_static"]
html_css_files = ["climate.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
copybutton_exclude = ".linenos, .gp, .go"
