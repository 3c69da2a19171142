"""The options of climate.conf, with a module for each group of related sections.

``registry`` collects all options, reads the configuration and returns the settings.
"""
