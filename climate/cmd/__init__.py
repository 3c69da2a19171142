"""The programs: ``main`` parses command lines, ``programs`` builds and runs the programs.

``main`` and ``status`` import the rest of climate only when a program runs, so ``--help`` is fast.
"""
