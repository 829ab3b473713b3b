"""HDF5 files that others wrote: what is in them, but nothing that they lead to elsewhere."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xskill.data.sources.arrays import check_chunks, missing_chunks, readable
from xskill.errors import DataError


@contextmanager
def opened(path: Path, extra: str) -> Iterator[Any]:
    """The file, open for reading. Raises `DataError`, also for the body."""
    if importlib.util.find_spec("h5py") is None:
        raise DataError(f"reading {path} needs h5py: pip install -e '.[{extra}]'")
    import h5py

    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with readable(path), h5py.File(path, "r") as file:
        yield file


def group_at(group: Any, *names: str) -> Any:
    """The group under these names, one within the other. Raises `DataError`."""
    import h5py

    found = _inside(group, *names)
    if not isinstance(found, h5py.Group):
        raise DataError(f"{label(found)} is an array; expected a group of arrays")
    return found


def array_at(group: Any, *names: str) -> Any:
    """The array under these names. Raises `DataError`."""
    import h5py

    found = _inside(group, *names)
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{label(found)} is a group; expected an array")
    check_chunks(found, label(found))
    there = found.id.get_num_chunks() if found.chunks else min(1, found.id.get_storage_size())
    if found.size and (missing := missing_chunks(found, there)):
        raise DataError(f"{label(found)} was not written to its end: {missing} of its chunks are missing")
    return found


def arrays(group: Any) -> dict[str, Any]:
    """The arrays right under a group, by name. Raises `DataError`."""
    import h5py

    found = {name: _inside(group, name) for name in group}
    return {name: item for name, item in found.items() if isinstance(item, h5py.Dataset)}


def label(item: Any, *names: str) -> str:
    """How errors call it: the file, then where in it."""
    return f"{item.file.filename}: {'/'.join([item.name.rstrip('/'), *names])}"


def _inside(group: Any, *names: str) -> Any:
    import h5py

    for name in "/".join(names).split("/"):
        what = label(group, name)
        with readable(what):
            link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
            if link is None:
                raise DataError(f"{what} is missing")
            if not isinstance(link, h5py.HardLink):
                raise DataError(f"{what} is a link, which may lead to another file; put the data itself there")
            group = group[name]
            if isinstance(group, h5py.Dataset) and (group.is_virtual or group.external):
                raise DataError(f"{what} is kept in another file; put the data itself there")
    return group
