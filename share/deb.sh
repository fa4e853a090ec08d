#!/usr/bin/env bash
# deb.sh FOLDER: Debian packages of this tree in FOLDER, and what lintian finds in them. Run by `make deb` in the root of the
# repository. Needs debhelper, dh-python, lintian and what the packages are built with (debian/control); with nvcc there is a
# package of the CUDA backend, too.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
version=$(cat VERSION)
day=$(sed -n 's/^## .*(\([0-9-]*\)).*/\1/p' CHANGELOG.md | head -n 1)
tree=$out/specpipe-$version
profiles=
[ -z "$(command -v "${NVCC-nvcc}")" ] || profiles=pkg.specpipe.cuda

rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$tree"
cat >"$tree/debian/changelog" <<END
specpipe ($version) unstable; urgency=medium

  * Release $version: see CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(LC_ALL=C date -u -R -d "$day")
END
(cd "$tree" && DEB_BUILD_PROFILES=$profiles dpkg-buildpackage -b -us -uc) >"$out/log" 2>&1 || {
    tail -n 30 "$out/log" >&2
    echo "deb.sh: dpkg-buildpackage failed: $out/log" >&2
    exit 1
}
rm -rf "$tree"
lintian --fail-on error,warning "$out/specpipe_${version}_$(dpkg --print-architecture).changes"
(cd "$out" && ls ./*.deb)
