"""What the live server offers x contract x pins -> verdict."""
