"""Getting hosts ready for their leases: power, boot device, and whether they can be used."""
