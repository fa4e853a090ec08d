#!/usr/bin/env bash
# python.sh FOLDER: makes FOLDER, a Python environment with the packages whose readers are tested, from PyPI: once, and again
# where packages are missing. Those that cannot be had are named; their tests are skipped. SPX_INTEROP, another Python with
# them, is taken as it is. Called by `make check-interop`.
set -euo pipefail

[ -z "${SPX_INTEROP:-}" ] || exit 0
packages=(numpy h5py astropy fitsio specutils rvspecfit desiutil)
# what a checkout of desispec imports where it reads and calibrates
[ -z "${SPX_DESISPEC:-}" ] || packages+=(desimodel desitarget speclite numba healpy requests matplotlib)
[ -x "$1/bin/pip" ] || "${PYTHON:-python3}" -m venv "$1" >/dev/null 2>&1 || {
    echo "check-interop: no Python environment can be made (python3-venv is missing?): all its tests are skipped" >&2
    exit 0
}
for p in "${packages[@]}"; do
    # names of packages and of their modules are the same
    "$1/bin/python" -c "import $p" 2>/dev/null || "$1/bin/pip" install -q "$p" >"$1/pip.log" 2>&1 ||
        echo "check-interop: $p cannot be had: $(tail -n 1 "$1/pip.log")" >&2
done
