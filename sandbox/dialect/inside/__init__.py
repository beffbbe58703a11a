"""The driver in which code of callers runs: DRIVER.md, its contract and its program, which is never imported here."""
