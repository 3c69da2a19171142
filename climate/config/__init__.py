"""The options of climate.conf, one module per section of the documentation.

``registry`` collects them and is the only module that touches oslo.config's global object.
"""
