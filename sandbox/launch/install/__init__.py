"""DriverSpec → the image that its server runs on: what `install` and `server` ask for, pinned by ``driver.lock``.

::

    DriverSpec ─ ask ─> Ask ─ lock ─> driver.lock ─ put ─> layer on an image of images/ ─> ImageFacts

Two phases that never mix. *Locking* (`mcp-sandbox lock`) asks a registry what a package is and pins the whole tree by
digest. *Installing* fetches exactly that, in a confined build container with every script off, and keeps the result
as a layer whose digest the lock holds as well. Running needs neither: the image id follows from the lock, and is
there or is not.

One module for each method: ``npm``, ``pip``, ``apt``, ``download``, ``hostfile`` (host programs and vendored files),
``docker``.
"""
