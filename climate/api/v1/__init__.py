"""The v1 API, wire-compatible with Blazar: a module for each noun, and the request schemas."""
