"""The benchmark of admission: its cases, its clients' tasks, and the API's servers."""
