"""Recipes: how a compute definition becomes a fast kernel, by schedule primitives alone."""
