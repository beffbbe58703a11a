"""Public conformance suite for backends, fakes and hostile servers."""
