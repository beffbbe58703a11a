"""Calls that outlive their connection and this process: jobs of the dialect and tasks of MCP 2025-11-25, one store.

======================  =====================================================================================
state                   what a SIGKILL of the gateway makes of it
======================  =====================================================================================
``waiting``             it is started later: nothing of it has reached the server
``running``             ``error`` (``DIA-014``, interrupted) at the next start, since nobody knows whether the
                        server carried it out; run again when its contract says ``idempotent``
``success``, ``error``  kept until its time is over
``cancelled``           the same
======================  =====================================================================================

*At most once* therefore holds for every job whose tool is not idempotent: ``running`` is on disk before the call goes
out, and nothing that was ``running`` goes out again. The price is honest: such a job may have been carried out and be
told as an error.
"""
