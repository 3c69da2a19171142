"""The tests of climate."""

import gc

# While modules are imported, little is garbage: at Python's own threshold, looking for it takes a
# tenth of the time of all imports.
gc.set_threshold(50_000)
