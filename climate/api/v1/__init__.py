"""The v1 API, wire-compatible with Blazar: a module per noun, and their schemas."""
