"""What was served before: the versions of a server that git and the gateway's own notes remember."""
