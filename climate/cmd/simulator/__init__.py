"""The program climate-simulate: the whole service on a virtual clock, with the load of a trace.

``traces`` and ``lublin`` provide the jobs, ``users`` sends requests, ``world`` is the service, and
``metrics`` computes the figures. There is no second scheduler: only settings differ from
production.
"""
