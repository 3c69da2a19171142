"""climate's programs, such as climate-api and climate-manager.

``main`` parses the command lines, ``programs`` runs the programs, and ``bootstrap`` creates their
objects. ``main`` and ``status`` import other modules of climate only when a program runs, so
``--help`` is fast.
"""
