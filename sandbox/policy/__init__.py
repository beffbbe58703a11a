"""May this be done? Deny by default; a rule that errors denies. Asked by plan, vet and serve."""
