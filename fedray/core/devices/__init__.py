"""Devices and their time: who the clients' devices are, and a virtual clock that decides who arrives when."""
