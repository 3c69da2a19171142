"""The ``climate`` command, which is also a plug-in of the ``openstack`` command.

``app`` is the program ``climate``, ``osc`` the plug-in. ``base`` has what all commands share; each
other module has the commands of a noun. ``options`` reads arguments, ``display`` writes answers.
"""
