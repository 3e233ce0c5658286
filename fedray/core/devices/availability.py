"""When devices can take part: a pure function of device and time."""
