"""DriverSpec x policy x host facts -> SandboxPlan. Pure: no input or output, no clock."""
