"""DRIVER.md, TOOL.md and SECRETS.md become values. The only stage that reads driver folders."""
