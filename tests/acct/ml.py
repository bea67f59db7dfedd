# SPDX-License-Identifier: Apache-2.0
"""NVML through ctypes, as far as the tests of the fake one need it."""
import ctypes as C
import os
import shutil

OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 0, 1, 2, 3, 6
SIZE, NO_DRIVER, LOST, NO_DATA, VERSION = 7, 9, 15, 21, 25
ALL_LINKS = 0xffffffff
ENERGY, NVLINK_TX, NVLINK_RX, PCIE_TX, PCIE_RX = 83, 138, 139, 197, 198
NVLINK5_TX, NVLINK5_RX = 202, 204
SM, OCCUPANCY, DRAM, G_PCIE_TX, G_PCIE_RX, G_NVLINK_RX, G_NVLINK_TX = (
    2, 3, 10, 20, 21, 60, 61)


class Pci(C.Structure):
    _fields_ = [("legacy", C.c_char * 16), ("domain", C.c_uint),
                ("bus", C.c_uint), ("device", C.c_uint), ("id", C.c_uint),
                ("subsystem", C.c_uint), ("bus_id", C.c_char * 32)]


class FieldValue(C.Union):
    _fields_ = [("d", C.c_double), ("u", C.c_uint), ("ull", C.c_ulonglong)]


class Field(C.Structure):
    _fields_ = [("id", C.c_uint), ("scope", C.c_uint),
                ("stamp", C.c_longlong), ("latency", C.c_longlong),
                ("type", C.c_uint), ("code", C.c_uint), ("value", FieldValue)]

    def number(self):
        return {0: self.value.d, 1: self.value.u, 3: self.value.ull}[self.type]


class Metric(C.Structure):
    _fields_ = [("id", C.c_uint), ("code", C.c_uint), ("value", C.c_double),
                ("names", C.c_char_p * 3)]


class Metrics(C.Structure):
    _fields_ = [("version", C.c_uint), ("count", C.c_uint),
                ("sample1", C.c_void_p), ("sample2", C.c_void_p),
                ("metric", Metric * 333)]


class Support(C.Structure):
    _fields_ = [("version", C.c_uint), ("supported", C.c_uint)]


class Error(Exception):
    def __init__(self, function, code):
        super().__init__("%s: %d" % (function, code))
        self.code = code


class Ml:
    """A copy of the library, with a state and a scenario of its own."""

    def __init__(self, library, folder, scenario=None):
        self.path = os.path.join(folder, "libnvidia-ml.so.1")
        shutil.copy(library, self.path)
        if scenario is not None:
            with open(os.path.join(folder, "scenario"), "w") as f:
                f.write(scenario)
        self.lib = C.CDLL(self.path)

    def has(self, name):
        return hasattr(self.lib, name)

    def code(self, name, *args):
        return getattr(self.lib, "nvml" + name)(*args)

    def call(self, name, *args):
        code = self.code(name, *args)
        if code:
            raise Error(name, code)

    def number(self, name, *args, kind=C.c_uint):
        out = kind()
        self.call(name, *args, C.byref(out))
        return out.value

    def text(self, name, *args):
        out = C.create_string_buffer(96)
        self.call(name, *args, out, C.c_uint(96))
        return out.value.decode()

    def handle(self, by, what):
        out = C.c_void_p()
        self.call(by, what, C.byref(out))
        return out

    def index(self, index):
        return self.handle("DeviceGetHandleByIndex_v2", C.c_uint(index))

    def uuid(self, uuid):
        return self.handle("DeviceGetHandleByUUID", uuid.encode())

    def pci(self, handle):
        out = Pci()
        self.call("DeviceGetPciInfo_v3", handle, C.byref(out))
        return out

    def fields(self, handle, *ids, scope=ALL_LINKS):
        out = (Field * len(ids))()
        for field, field_id in zip(out, ids):
            field.id, field.scope = field_id, scope
        self.call("DeviceGetFieldValues", handle, len(ids), out)
        return list(out)

    def energy(self, handle):
        return self.number("DeviceGetTotalEnergyConsumption", handle,
                           kind=C.c_ulonglong)

    def sample(self, handle, gi=None):
        out = C.c_void_p()
        self.call("GpmSampleAlloc", C.byref(out))
        if gi is None:
            self.call("GpmSampleGet", handle, out)
        else:
            self.call("GpmMigSampleGet", handle, C.c_uint(gi), out)
        return out

    def metrics(self, one, two, *ids, version=1):
        """(code, [(code, value)])"""
        m = Metrics(version, len(ids), one, two)
        for metric, metric_id in zip(m.metric, ids):
            metric.id = metric_id
            metric.value = -1
        code = self.code("GpmMetricsGet", C.byref(m))
        return code, [(x.code, x.value) for x in m.metric[:len(ids)]]
