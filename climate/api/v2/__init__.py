"""Our own API, growing: ISO 8601 times, RFC 9457 errors."""
