"""Run MCP servers under the permissions of one reviewed file, and keep evidence of what they did.

The flow is the folder list, and imports go one way along it::

    DRIVER.md ─ spec ─> DriverSpec ─ plan ─> SandboxPlan ─ launch ─> Instance ─ vet ─> Verdict ─ serve ─> calls ─ audit

``spec``    DRIVER.md, TOOL.md and SECRETS.md become values; nothing else reads driver folders.
``plan``    values, policy and host facts become a :class:`SandboxPlan`; pure.
``launch``  a plan becomes a running, read-back :class:`Instance`; the only package that knows a container engine.
``vet``     what the live server offers is held against its contracts.
``serve``   callers reach vetted servers, call by call.
``audit``   the facts that every stage emits become evidence.
"""

__version__ = "0.1.0"
