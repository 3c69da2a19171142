"""The programs. Each module parses a command line and runs what ``climate.bootstrap`` builds.

Modules import the heavy parts only when they run, so that ``--help`` answers at once.
"""
