"""Networks over sequences of tokens or frames, whose batch and length are symbolic."""
