"""What a durable directory is worth later: damage that is named, readers, foreign files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import unspool


def keep(path: Path, count: int = 5) -> list[Path]:
    """Saves versions 0 to count - 1, too large to share a file, and names their files."""
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(path, durable=True)) as spool:
        for version in range(count):
            spool.save(version, np.full(10_000, version))
    return sorted(path.glob("frame-*"))


def change(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def opened(path: Path, **options: object) -> unspool.Spool:
    disk = unspool.Disk(path, **({"durable": True} | options))  # type: ignore[arg-type]
    return unspool.Spool(host_memory="1MiB", disk=disk)


def test_one_changed_byte_costs_one_version_and_a_warning(tmp_path: Path) -> None:
    files = keep(tmp_path)
    for at in (0, 9, 24, 48, 300):
        change(files[2], at)
        with pytest.warns(RuntimeWarning, match=f"Version 2 is left out: {files[2]}"):
            spool = opened(tmp_path)
        with spool:
            assert spool.versions() == [0, 1, 3, 4]
            with pytest.raises(unspool.errors.CorruptCheckpointError, match=str(files[2])):
                spool.load(2)
            assert (spool.load(4) == 4).all()
            assert any("Version 2" in note for note in spool.stats().notes)
        change(files[2], at)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path) as spool:
            assert (spool.load(2) == 2).all()


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    files = keep(tmp_path, 8)
    for file in files[2:]:
        file.unlink()
    with pytest.warns(RuntimeWarning, match=r"Version 2 is left out.*And 3 more"):
        spool = opened(tmp_path)
    with spool:
        with pytest.raises(unspool.errors.LostCheckpointError, match="is missing"):
            spool.load(7)
        with pytest.raises(unspool.errors.UnknownVersionError, match="never saved"):
            spool.load(8)
        spool.save(7, np.zeros(3))
        assert (spool.load(7) == 0).all()


def test_a_directory_is_read_while_another_spool_writes_it(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.save(0, np.arange(10))
        writer.flush()
        with opened(tmp_path, mode="r") as reader:
            assert (reader.load(0) == np.arange(10)).all()
            for refused in (lambda: reader.save(1, np.zeros(3)), lambda: reader.discard(0)):
                with pytest.raises(unspool.errors.StorageError, match="opened for reading") as no:
                    refused()
                assert not no.value.retryable
            reader.flush()
        writer.save(1, np.arange(3))
    assert len(list(tmp_path.glob("pack-*"))) == 1


def test_small_checkpoints_share_a_file(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for version in range(1000):
            spool.save(version, np.full(4, version))
        spool.discard(500)
    (pack,) = tmp_path.glob("pack-*")
    assert pack.stat().st_size < 300 * 1000
    data = pack.read_bytes()
    change(pack, data.index(np.full(4, 700).tobytes()))
    with pytest.warns(RuntimeWarning, match=f"Version 700 is left out: .*{pack}"):
        spool = opened(tmp_path)
    with spool:
        assert spool.versions() == [v for v in range(1000) if v not in (500, 700)]
        assert all((spool.load(version) == version).all() for version in (0, 499, 999))
        with pytest.raises(unspool.errors.CorruptCheckpointError, match=str(pack)):
            spool.load(700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_read(tmp_path: Path) -> None:
    keep(tmp_path)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(unspool.errors.StorageError, match="permission"):
            opened(tmp_path)
        with opened(tmp_path, mode="r") as spool:
            assert (spool.load(3) == 3).all()
    finally:
        tmp_path.chmod(0o755)


def test_files_have_the_permissions_that_were_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, permissions=0o640) as spool:
        spool.save(0, np.zeros(10))
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o640}


@pytest.mark.parametrize("name", ["unspool.lock", "unspool.manifest", "frame-0000000000000000-1"])
def test_a_pipe_with_one_of_our_names_does_not_hang(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    if name.startswith("frame"):
        opened(tmp_path).close()
    else:
        with pytest.raises(unspool.errors.StorageError, match=name):
            opened(tmp_path)
    assert (tmp_path / name).is_fifo()


def test_foreign_files_are_as_they_were_and_a_closed_spool_has_none_open(tmp_path: Path) -> None:
    foreign = {"slot-1": "a", "frame-ffffffffffffffff-0": "", "lock": "b", "notes.txt": "c"}
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
    spool = opened(tmp_path)
    spool.save(0, np.zeros(1000))
    spool.close()
    for name, text in foreign.items():
        assert (tmp_path / name).read_text() == text
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    held = [os.readlink(link) for link in links if os.path.lexists(link)]
    assert not [path for path in held if path.startswith(str(tmp_path))]


def test_what_is_lost_is_named_until_it_is_discarded(tmp_path: Path) -> None:
    files = keep(tmp_path)
    change(files[1], 9)
    files[2].unlink()
    with files[3].open("r+b") as file:
        file.truncate(100)
    with pytest.warns(RuntimeWarning, match="Version 1"):
        spool = opened(tmp_path)
    with spool:
        lost = spool.lost()
        assert list(lost) == [1, 2, 3]
        for version, what in zip(lost, ("head", "is missing", "is cut off"), strict=True):
            assert str(files[version]) in lost[version] and what in lost[version]
        for version in lost:
            spool.discard(version)
            with pytest.raises(unspool.errors.UnknownVersionError, match="never saved"):
                spool.discard(version)
        assert spool.lost() == {} and spool.versions() == [0, 4]
    assert sorted(tmp_path.glob("frame-*")) == [files[0], files[4]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path) as spool:
            assert spool.versions() == [0, 4] and (spool.load(4) == 4).all()


def test_a_lost_version_that_is_saved_again_is_not_missed(tmp_path: Path) -> None:
    files = keep(tmp_path)
    change(files[1], 9)
    files[2].unlink()
    with pytest.warns(RuntimeWarning, match="Version 1"), opened(tmp_path) as spool:
        for version in (1, 2):
            spool.save(version, np.full(3, -version))
        assert spool.lost() == {}
    with opened(tmp_path, mode="r") as reader:
        assert reader.lost() == {} and (reader.load(2) == -2).all()
    assert files[1].exists(), "a reader removes nothing"
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with opened(tmp_path) as spool:
                assert spool.lost() == {} and (spool.load(1) == -1).all()
    assert files[1] not in tmp_path.iterdir()


def test_a_reader_discards_nothing_that_is_lost(tmp_path: Path) -> None:
    files = keep(tmp_path)
    change(files[1], 9)
    with pytest.warns(RuntimeWarning), opened(tmp_path, mode="r") as reader:
        assert list(reader.lost()) == [1]
        with pytest.raises(unspool.errors.StorageError, match="opened for reading"):
            reader.discard(1)
        assert list(reader.lost()) == [1]
    assert files[1].exists()


def test_a_history_is_cut_after_a_version(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for version in (-3, 0, 1, 5, 9):
            spool.save(version, np.full(10_000, version))
    frame = sorted(tmp_path.glob("frame-*"), key=lambda one: one.stat().st_mtime_ns)[-1]
    frame.unlink()
    with pytest.warns(RuntimeWarning):
        spool = opened(tmp_path)
    with spool:
        assert list(spool.lost()) == [9]
        spool.truncate(after=1 << 62)
        assert list(spool.lost()) == [9]
        spool.truncate(after=1)
        assert spool.versions() == [-3, 0, 1] and not spool.lost()
        spool.save(5, np.full(10_000, 55))
        spool.truncate(after=5)
        assert spool.load(5)[0] == 55
    with opened(tmp_path) as spool:
        assert spool.versions() == [-3, 0, 1, 5] and not spool.lost()
        spool.truncate(after=-4)
        assert not spool.versions()
    with pytest.raises(unspool.errors.ClosedError):
        spool.truncate(after=1)
