"""SandboxPlan -> running, read-back Instance. The only package that knows a container engine."""
