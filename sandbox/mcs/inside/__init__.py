"""What runs inside the sandbox; nothing of it is imported outside."""
