"""The commands of leases and of offers."""
