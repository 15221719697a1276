"""Files of numpy, h5py and netCDF4, many of each rank, read back by another rank.

    mpiexec -n N python3 tests/mpi/arrays.py DIR COUNT

Each rank makes COUNT files of each kind in DIR. After a barrier it reads those of the next rank and compares each number. The files have
the same bytes in each run, so directories of two runs may be compared.
"""

import os
import sys

import h5py
import netCDF4
import numpy as np
from mpi4py import MPI

directory, count = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def numbers(writer, number):
    return np.arange(200 + number % 50, dtype="f8") * (number + 1) + writer


def path(writer, number, kind):
    return os.path.join(directory, f"{writer}.{number}.{kind}")


os.makedirs(directory, exist_ok=True)
for number in range(count):
    values = numbers(rank, number)
    np.save(path(rank, number, "npy"), values)
    with h5py.File(path(rank, number, "h5"), "w") as file:
        file.create_dataset("group/values", data=values, chunks=(64,), track_times=False)
        file.attrs["writer"] = rank
    with netCDF4.Dataset(path(rank, number, "nc"), "w") as file:
        file.createDimension("x", len(values))
        file.createVariable("values", "f8", ("x",))[:] = values
        file.writer = rank
# A few are opened again and changed.
for number in range(0, count, 10):
    with h5py.File(path(rank, number, "h5"), "r+") as file:
        file["group/values"][7] = -1
        file.create_dataset("added", data=np.int32(number), track_times=False)
world.Barrier()

writer = (rank + 1) % size
for number in range(count):
    values = numbers(writer, number)
    assert np.array_equal(np.load(path(writer, number, "npy")), values), path(writer, number, "npy")
    with netCDF4.Dataset(path(writer, number, "nc")) as file:
        assert np.array_equal(file["values"][:], values) and file.writer == writer, path(writer, number, "nc")
    with h5py.File(path(writer, number, "h5"), "r") as file:
        if number % 10 == 0:
            values[7] = -1
            assert file["added"][()] == number, path(writer, number, "h5")
        assert np.array_equal(file["group/values"][:], values) and file.attrs["writer"] == writer, path(writer, number, "h5")
listed = sum(name.endswith((".npy", ".h5", ".nc")) for name in os.listdir(directory))
assert listed == 3 * count * size, f"{listed} names"
if rank == 0:
    print(f"{listed} files")
