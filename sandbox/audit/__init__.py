"""Events -> evidence."""
