"""What acts on the cloud: one plugin per resource type, and the drivers they use.

Plugins never see the database; the manager hands them records and stores what they return.
"""
