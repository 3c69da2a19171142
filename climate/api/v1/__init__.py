"""The v1 API, wire-compatible with Blazar: one module per noun, and their schemas."""
