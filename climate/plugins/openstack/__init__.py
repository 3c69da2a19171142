"""Access to OpenStack that several resource types share."""
