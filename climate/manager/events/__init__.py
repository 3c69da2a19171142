"""Events: claim what is due, run it through the plug-ins, store the outcome."""
