"""Reading models: a path, bytes or a proto becomes a checked proto with known shapes."""
