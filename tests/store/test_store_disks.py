"""Full and read-only disks, and file systems without locks or for several machines."""

from __future__ import annotations

import errno
import os
import sys

import pytest
from store_samples import ASIDE, FOLDER, NAMES, RUN, run_child
from support.c_shim import build_shim
from support.small_disk import small_disk
from support.stored import list_stored

from pytest_agentbench.store.connection import find_file_system
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.output_folder import DATABASE


def test_a_full_disk_keeps_stored_documents(tmp_path):
    with small_disk(tmp_path / "disk"):
        documents = open_documents(tmp_path / "disk/outputs")
        documents.put(RUN, b"paid")
        stored = 0
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
            for number in range(2, 200):
                documents.put(f"{FOLDER}/run_{number}.json", b"x" * 30_000)
                stored = number
        assert stored > 2
        assert documents.read(RUN) == b"paid"
        assert all(documents.size(f"{FOLDER}/run_{number}.json") == 30_000 for number in range(2, stored + 1))
        assert documents.read(f"{FOLDER}/run_{stored + 1}.json") is None
        documents.close()


def test_a_disk_that_has_room_again_is_written_to(tmp_path):
    with small_disk(tmp_path / "disk") as remount:
        documents = open_documents(tmp_path / "disk/outputs")
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
            for number in range(2, 200):
                documents.put(f"{FOLDER}/run_{number}.json", b"x" * 30_000)
        remount("size=20m")
        documents.put(RUN, b"paid")
        assert documents.read(RUN) == b"paid"
        documents.close()


def test_a_disk_that_is_only_read_is_read(tmp_path):
    with small_disk(tmp_path / "disk") as remount:
        documents = open_documents(tmp_path / "disk/outputs")
        documents.put(RUN, b"paid")
        documents.close()
        remount("ro")
        assert documents.read(RUN) == b"paid"
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            documents.put(RUN, b"new")
        documents.touch(RUN)
        documents.close()


REFUSE_LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

static int call(const char *name, int descriptor, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
        errno = ENOLCK;
        return -1;
    }
    int (*next)(int, int, ...) = dlsym(RTLD_NEXT, name);
    return next(descriptor, command, argument);
}

#define FORWARD(name)                             \
    int name(int descriptor, int command, ...) {  \
        va_list rest;                             \
        va_start(rest, command);                  \
        void *argument = va_arg(rest, void *);    \
        va_end(rest);                             \
        return call(#name, descriptor, command, argument); \
    }

FORWARD(fcntl)
FORWARD(fcntl64)
int flock(int descriptor, int operation) { errno = ENOLCK; return -1; }
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
def test_without_locks_results_are_files_and_that_is_said_once(tmp_path):
    shim = build_shim(tmp_path, REFUSE_LOCKS)
    code = f"""
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
documents.put({RUN!r}, b"first")
documents.put({RUN!r}, b"second")
documents.move({RUN!r}, {ASIDE!r})
documents.touch({ASIDE!r})
print(documents.read({ASIDE!r}), documents.names({FOLDER!r}), dict(documents.find({FOLDER!r}, {NAMES!r})))
"""
    output = tmp_path / "outputs"
    *warnings, said = run_child(code, output, env=os.environ | {"LD_PRELOAD": str(shim)}).splitlines()
    assert said == f"b'second' ['{NAMES[1]}'] {{'{ASIDE}': b'second'}}"
    assert [("results are kept as files" in line) for line in warnings if "kept as files" in line] == [True]
    assert list_stored(output) == [ASIDE]
    assert not (output / DATABASE).exists()
    assert open_documents(output).read(ASIDE) == b"second"


OTHER_MOUNTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FORWARD(name)                                                                  \
    int name(const char *path, int flags, ...) {                                       \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        int mode = va_arg(rest, int);                                                  \
        va_end(rest);                                                                  \
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                 \
        return next(strcmp(path, "/proc/self/mountinfo") ? path : getenv("MOUNTS"), flags, mode); \
    }

FORWARD(open)
FORWARD(open64)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
@pytest.mark.parametrize("copied", [True, False], ids=["a database that was copied there", "a new folder"])
def test_on_a_network_file_system_results_are_files_or_one_warning_says_what_to_do(documents, tmp_path, copied):
    shim = build_shim(tmp_path, OTHER_MOUNTS)
    (tmp_path / "mounts").write_text(f"30 22 0:40 / {os.path.realpath(tmp_path)} rw - nfs4 server:/home rw\n")
    if copied:
        documents.put(RUN, b"first")
        documents.close()
    code = f"""
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
documents.put({ASIDE!r}, b"second")
documents.close()
print(documents.read({ASIDE!r}), documents.names({FOLDER!r}))
"""
    environ = os.environ | {"LD_PRELOAD": str(shim), "MOUNTS": str(tmp_path / "mounts")}
    *warnings, said = run_child(code, tmp_path, env=environ).splitlines()
    names = [*NAMES] if copied else [NAMES[1]]
    assert said == f"b'second' {sorted(names)}"
    expected = "agentbench store export --files DIR" if copied else "results are kept as files"
    assert [expected in line for line in warnings] == [True]
    assert (tmp_path / ASIDE).exists() == (not copied)


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / /home rw,relatime shared:5 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /data rw master:1 propagate_from:2 - ext4 /dev/sdc rw
33 32 0:43 / /data rw - lustre mgs@tcp:/fs rw
34 22 0:44 / /mnt/逆 rw - fuse.sshfs me@there: rw
broken
""".strip().splitlines()


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/outputs", "nfs4"),
        ("/homes/me", "ext4"),
        ("/home/me/local disk/outputs", "xfs"),
        ("/data/outputs", "lustre"),
        ("/mnt/逆/outputs", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_mount_and_the_last(place, kind):
    assert find_file_system(place, MOUNTS) == kind


def test_no_mounts_no_file_system():
    assert find_file_system("/home", []) == ""
