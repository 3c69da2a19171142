"""Use cases of requests, events and the cloud, shared by ``climate-api`` and ``climate-manager``.

A use case opens its transaction itself. No network call is made while a transaction is open.
``claims`` lets only one manager run an event. ``enforcement`` is the client of an enforcement
service.
"""
