"""Data files from a folder, the cache or a download, and the errors if none has them."""

import errno
import hashlib
import os
import zipfile

import pytest

from biv.datasets import download
from biv.datasets.download import CsvTable, RemoteFile, find_file

CONTENT = b"a,b\n1,2\n"


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """Return a file that only its URL provides, with an empty cache."""
    monkeypatch.delenv("BIV_DATA_DIR", raising=False)
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    return write_archive(tmp_path, CONTENT)


def write_archive(folder, content, member="table.csv"):
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr(member, content)
    return RemoteFile("kind/table.csv", archive.as_uri(), "table.csv", sha256(CONTENT))


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def test_a_file_is_downloaded_once_and_then_cached(remote, tmp_path):
    path = find_file(remote)
    assert path == tmp_path / "cache" / "kind" / "table.csv"
    assert path.read_bytes() == CONTENT
    assert files_below(tmp_path / "cache") == [path]
    (tmp_path / "archive.zip").unlink()
    assert find_file(remote) == path


def test_the_data_folder_comes_before_the_cache(remote, tmp_path, monkeypatch):
    local = tmp_path / "data" / "kind" / "table.csv"
    local.parent.mkdir(parents=True)
    local.write_bytes(CONTENT)
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    assert find_file(remote) == local
    assert not files_below(tmp_path / "cache")
    local.unlink()  # now the cache and the download are tried
    assert find_file(remote) == tmp_path / "cache" / "kind" / "table.csv"


def test_without_a_network_the_error_explains_what_to_do(remote, tmp_path):
    (tmp_path / "archive.zip").unlink()
    with pytest.raises(FileNotFoundError) as error:
        find_file(remote)
    message = str(error.value)
    for part in (
        remote.url,
        "unzip",
        str(tmp_path / "cache" / "kind" / "table.csv"),
        "BIV_DATA_DIR=<folder>",
    ):
        assert part in message


def test_a_download_with_a_wrong_checksum_is_not_cached(remote, tmp_path):
    write_archive(tmp_path, b"something else")
    with pytest.raises(
        ValueError, match=f"SHA-256 {remote.sha256}; got {sha256(b'something else')}"
    ):
        find_file(remote)
    assert not files_below(tmp_path / "cache")


@pytest.mark.parametrize("where", ["cache", "data"])
def test_a_damaged_file_is_named_and_kept(remote, tmp_path, monkeypatch, where):
    damaged = tmp_path / where / "kind" / "table.csv"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(CONTENT[:-1])
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(ValueError, match=f"{where}.*remove it and try again"):
        find_file(remote)
    assert damaged.read_bytes() == CONTENT[:-1]


def test_a_download_that_is_not_the_archive_is_rejected(remote, tmp_path):
    (tmp_path / "archive.zip").write_bytes(b"<html>Sorry</html>")
    with pytest.raises(ValueError, match="must be a zip archive with table.csv; got 18 bytes"):
        find_file(remote)
    write_archive(tmp_path, CONTENT, member="other.csv")
    with pytest.raises(ValueError, match="must be a zip archive with table.csv"):
        find_file(remote)


def test_an_incomplete_download_is_rejected(remote, monkeypatch):
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
        find_file(remote)


def test_a_full_disk_leaves_no_file(remote, tmp_path, monkeypatch):
    def raise_disk_full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", raise_disk_full)
    with pytest.raises(
        OSError, match="could not be written: no space left on device: set BIV_CACHE_DIR"
    ) as error:
        find_file(remote)
    assert error.value.errno == errno.ENOSPC
    assert not files_below(tmp_path / "cache")


def test_the_cache_follows_the_environment_variables(monkeypatch, tmp_path):
    monkeypatch.delenv("BIV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.cache_dir() == tmp_path / "biv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert download.cache_dir().parts[-2:] == (".cache", "biv")


def test_csv_errors_name_the_invalid_cell():
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
