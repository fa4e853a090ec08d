#!/usr/bin/env bash
# deb.sh FOLDER [CHROOT]: Debian packages of this tree in FOLDER, and what lintian finds in them. Run by `make deb` in the root
# of the repository. Needs debhelper, dh-python, lintian and what the packages are built with (debian/control). With CHROOT
# (tests/deb.sh) the build is there, and what it needs is installed there from Debian's archive. With nvcc there is a package of
# the CUDA backend, too.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
chroot=${2:-}
version=$(cat VERSION)
day=$(sed -n 's/^## .*(\([0-9-]*\)).*/\1/p' CHANGELOG.md | head -n 1)
place=${chroot:+$chroot/build}
place=${place:-$out}
tree=$place/specpipe-$version
nvcc=${NVCC-nvcc}
nvcc=$(command -v "${nvcc##* }" || true)
profiles=
[ -z "$nvcc" ] || profiles=pkg.specpipe.cuda

rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$tree"
cat >"$out/changelog" <<END
specpipe ($version) unstable; urgency=medium

  * Release $version: see CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(LC_ALL=C date -u -R -d "$day")
END
cp "$out/changelog" "$tree/debian/"
{
    if [ -z "$chroot" ]; then
        cd "$tree" && DEB_BUILD_PROFILES=$profiles dpkg-buildpackage -b -us -uc
    else
        # expanded by the shell in the chroot
        # shellcheck disable=SC2016
        chroot "$chroot" /usr/bin/env -i PATH="${nvcc:+$(dirname "$nvcc"):}/usr/sbin:/usr/bin:/sbin:/bin" \
            LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive DEB_BUILD_PROFILES="$profiles" \
            ${DEB_BUILD_OPTIONS:+DEB_BUILD_OPTIONS="$DEB_BUILD_OPTIONS"} bash -euo pipefail -c '
                cd "/build/$0"
                apt-get -q update
                apt-get -q -y --no-install-recommends install build-essential
                apt-get -q -y --no-install-recommends build-dep ./
                dpkg-buildpackage -b -us -uc' "$(basename "$tree")"
    fi
} >"$out/log" 2>&1 || {
    tail -n 30 "$out/log" >&2
    echo "deb.sh: dpkg-buildpackage failed: $out/log" >&2
    exit 1
}
rm -rf "$tree"
[ -z "$chroot" ] || mv "$place"/*.deb "$place"/*.changes "$place"/*.buildinfo "$out"
lintian --allow-root --fail-on error,warning "$out/specpipe_${version}_$(dpkg --print-architecture).changes"
(cd "$out" && ls ./*.deb)
