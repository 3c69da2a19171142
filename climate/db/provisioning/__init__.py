"""Statements on provisioning: the tasks of provisioners, and what climate knows about hosts.

A provisioner is a program that powers hosts on and off. It has two kinds of tasks. A preparation
makes a host ready for a lease. A shutdown switches off a host that no lease needs.
"""
