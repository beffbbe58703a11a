"""Records -> OpenTelemetry: spans, logs and metrics of the same facts, beside the ledger and never instead of it.

A process of its own follows this run's stream in the ledger and exports what it reads (ADR 0058): what goes out was
acknowledged and redacted before, the ledger is the queue, and a slow or dead collector costs a call nothing.
``project`` is pure and also behind ``audit export --format otlp-json``.
"""
