"""Where data files come from: folder, cache, download; and what is said when they do not."""

import errno
import hashlib
import os
import zipfile

import pytest

from biv.datasets import download
from biv.datasets.download import CsvTable, RemoteFile, find

CONTENT = b"a,b\n1,2\n"


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A file that can be had by URL alone, and a cache that is empty."""
    monkeypatch.delenv("BIV_DATA_DIR", raising=False)
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    return served(tmp_path, CONTENT)


def served(folder, content, member="table.csv"):
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr(member, content)
    return RemoteFile("kind/table.csv", archive.as_uri(), "table.csv", sha256(CONTENT))


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def everything_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def test_downloaded_once_then_cached(remote, tmp_path):
    path = find(remote)
    assert path == tmp_path / "cache" / "kind" / "table.csv"
    assert path.read_bytes() == CONTENT
    assert everything_in(tmp_path / "cache") == [path]
    (tmp_path / "archive.zip").unlink()
    assert find(remote) == path


def test_the_folder_of_data_comes_first(remote, tmp_path, monkeypatch):
    mine = tmp_path / "data" / "kind" / "table.csv"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(CONTENT)
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    assert find(remote) == mine
    assert not everything_in(tmp_path / "cache")
    mine.unlink()  # not there: the cache and the download are next
    assert find(remote) == tmp_path / "cache" / "kind" / "table.csv"


def test_offline_it_says_what_to_do(remote, tmp_path):
    (tmp_path / "archive.zip").unlink()
    with pytest.raises(FileNotFoundError) as error:
        find(remote)
    message = str(error.value)
    for part in (
        remote.url,
        "unzip",
        str(tmp_path / "cache" / "kind" / "table.csv"),
        "BIV_DATA_DIR=<folder>",
    ):
        assert part in message


def test_a_wrong_checksum_leaves_nothing_behind(remote, tmp_path):
    served(tmp_path, b"something else")
    with pytest.raises(
        ValueError, match=f"SHA-256 {remote.sha256}; got {sha256(b'something else')}"
    ):
        find(remote)
    assert not everything_in(tmp_path / "cache")


@pytest.mark.parametrize("where", ["cache", "data"])
def test_a_spoilt_file_is_named_and_kept(remote, tmp_path, monkeypatch, where):
    spoilt = tmp_path / where / "kind" / "table.csv"
    spoilt.parent.mkdir(parents=True)
    spoilt.write_bytes(CONTENT[:-1])
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(ValueError, match=f"{where}.*remove it and try again"):
        find(remote)
    assert spoilt.read_bytes() == CONTENT[:-1]


def test_an_archive_that_is_none(remote, tmp_path):
    (tmp_path / "archive.zip").write_bytes(b"<html>Sorry</html>")
    with pytest.raises(ValueError, match="must be a zip archive with table.csv; got 18 bytes"):
        find(remote)
    served(tmp_path, CONTENT, member="other.csv")
    with pytest.raises(ValueError, match="must be a zip archive with table.csv"):
        find(remote)


def test_a_download_cut_short(remote, monkeypatch):
    class Response:
        headers = {"Content-Length": "100"}  # noqa: RUF012

        def __init__(self):
            self.chunks = [b"abc", b""]

        def read(self, _):
            return self.chunks.pop(0)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(download.urllib.request, "urlopen", lambda *_, **__: Response())
    with pytest.raises(FileNotFoundError, match="ended after 3 of 100 bytes"):
        find(remote)


def test_a_full_disk_leaves_nothing_behind(remote, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(
        OSError, match="could not be written: no space left on device: set BIV_CACHE_DIR"
    ) as error:
        find(remote)
    assert error.value.errno == errno.ENOSPC
    assert not everything_in(tmp_path / "cache")


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("BIV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.cache_dir() == tmp_path / "biv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert download.cache_dir().parts[-2:] == (".cache", "biv")


def test_tables_name_the_bad_cell():
    table = CsvTable("bike.csv", ["hr,temp", "1,0.5", "2,warm", "3"])
    assert table.numbers("hr").tolist() == [1, 2, 3]
    with pytest.raises(
        ValueError, match="bike.csv, line 3, column 'temp' must be a number; got 'warm'"
    ):
        table.numbers("temp")
    with pytest.raises(ValueError, match="bike.csv must have a column 'wind'; got hr, temp"):
        table.numbers("wind")
    short = CsvTable("bike.csv", ["hr,temp", "1"])
    with pytest.raises(ValueError, match="line 2, column 'temp' must be a number; got None"):
        short.numbers("temp")
