"""Images that servers run on: made here, from packages, with an id that is known before they exist.

::

    recipe.toml + lock.json ─ apt, wheels ─> tree ─ archive ─> layers + configuration ─ engine ─> ImageFacts

- ``tree``     paths and their contents as values; what may not be in an image is refused when it is added
- ``unpack``   hostile or clumsy tar and zip files → entries of a tree
- ``archive``  tree → layer → image archive, byte for byte the same for the same input
- ``recipe``   ``images/<name>/recipe.toml`` → values; ``lock`` what a recipe was resolved to, and the id that gives
- ``apt``, ``wheels``  fetch packages through the host's own clients and their configuration
- ``engine``   the one module that speaks to a container engine; ``runner`` confined build containers on top of it
- ``build``    the flow: present in the engine, else in the cache, else built

No registry of images is involved and no host name stands in any file: where packages come from is what the host's apt
and pip are configured to.
"""
