import os


class Capabilities:
    direct_namespaces = os.geteuid() == 0
    landlock_abi = 7
    has_children_file = True
    reasons = {}

    def cell_uid(self, index):
        return (1 << 31) + (os.getpid() << 9) + index % 512


def probe():
    return Capabilities()


def best_level(c):
    return "full"
