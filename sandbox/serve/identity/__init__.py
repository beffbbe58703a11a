"""Who a request over HTTP is for: verified before its body is read, and never taken from a message."""
