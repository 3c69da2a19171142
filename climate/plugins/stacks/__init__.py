"""The resource type ``virtual:stack``: Heat stacks with reserved servers, volumes and addresses."""
