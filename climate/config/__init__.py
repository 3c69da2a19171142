"""The options of climate.conf, one module per section of the documentation.

``registry`` collects the options, reads the configuration and returns the settings.
"""
