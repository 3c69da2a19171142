"""The programs: ``main`` parses command lines, ``programs`` runs what ``climate.bootstrap`` builds.

``main`` and ``status`` import the rest of climate only when a program runs, so ``--help`` is fast.
"""
