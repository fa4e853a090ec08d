"""wheel.py ARCHIVE FOLDER: a Python wheel in FOLDER of the Python package, with the programs of the portable archive.

`pip install` puts the programs, their libraries, manual and completion into the environment, and the package beside them.
Run by `make wheel` in the root of the repository, with Python 3.9 or newer and nothing else. The same archive gives the same
bytes: files are sorted, and have the archive's time.
"""

import base64
import hashlib
import pathlib
import sys
import tarfile
import time
import zipfile

archive, folder = sys.argv[1:]
version = pathlib.Path("VERSION").read_text().strip()
# glibc of the archive (share/portable.sh): the name is that of PEP 600
tag = "py3-none-manylinux_2_36_x86_64"
info = f"specpipe-{version}.dist-info"
out = pathlib.Path(folder) / f"specpipe-{version}-{tag}.whl"

# name in the wheel -> content and mode; links become the files that they lead to, since wheels have none
files = {}
for path in sorted(pathlib.Path("python/specpipe").rglob("*")):
    if path.is_file() and "__pycache__" not in path.parts:
        files[f"specpipe/{path.relative_to('python/specpipe')}"] = (path.read_bytes(), 0o644)
for path in sorted(pathlib.Path("python/specpipe/schemas").iterdir()):  # a link, which rglob does not follow
    if path.suffix == ".schema":
        files[f"specpipe/schemas/{path.name}"] = (path.read_bytes(), 0o644)
with tarfile.open(archive) as tar:
    for member in tar:
        content = None if member.isdir() else tar.extractfile(member)  # that of the file which a link leads to
        if content:
            name = member.name.split("/", 1)[1]
            mode = 0o755 if member.mode & 0o100 and not member.issym() else 0o644
            files[f"specpipe-{version}.data/data/{name}"] = (content.read(), mode)
        stamp = time.gmtime(max(member.mtime, 315532800))[:6]  # zip begins in 1980

metadata = [
    "Metadata-Version: 2.1",
    "Name: specpipe",
    f"Version: {version}",
    "Summary: Extraction and velocities of multi-fibre spectra: programs, and their products as objects",
    "Requires-Python: >=3.9",
    "Requires-Dist: numpy>=1.21",
    "Requires-Dist: h5py>=3.6",
    "Description-Content-Type: text/markdown",
    "",
    pathlib.Path("python/README.md").read_text(),
]
files[f"{info}/METADATA"] = ("\n".join(metadata).encode(), 0o644)
wheel = f"Wheel-Version: 1.0\nGenerator: specpipe\nRoot-Is-Purelib: false\nTag: {tag}\n"
files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
files[f"{info}/licenses/LICENSE"] = (pathlib.Path("LICENSE").read_bytes(), 0o644)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


record = [f"{name},sha256={digest(data)},{len(data)}" for name, (data, _) in sorted(files.items())]
files[f"{info}/RECORD"] = ("\n".join(record + [f"{info}/RECORD,,", ""]).encode(), 0o644)

part = out.with_name(out.name + ".part")
with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    for name, (data, mode) in sorted(files.items()):
        member = zipfile.ZipInfo(name, stamp)
        member.external_attr = (0o100000 | mode) << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        z.writestr(member, data)
part.replace(out)
print(f"{hashlib.sha256(out.read_bytes()).hexdigest()}  {out.name}")
