"""climate's programs, such as climate-api and climate-manager.

``main`` parses the command lines and ``launch`` runs a program, whose module it imports then:
``programs`` (the servers), ``database``, ``listen``, ``manage`` or ``provisioner``. ``bootstrap``
creates the objects of servers. ``main`` and ``status`` import other modules of climate only when a
program runs, so ``--help`` is fast.
"""
