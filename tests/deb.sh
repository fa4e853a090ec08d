#!/usr/bin/env bash
# deb.sh BUILD [SUITE]: the Debian packages are built in a fresh chroot of SUITE, which has what debian/control asks for and
# nothing else, lintian finds nothing, and debian/tests pass in another fresh one, where the packages are installed. Run by
# `make check-deb` in the root of the repository. Needs root, debootstrap, lintian and autopkgtest; takes minutes. With nvcc the
# package of the CUDA backend is built, too.
set -euo pipefail

out=$(mkdir -p "$1/deb-chroot" && cd "$1/deb-chroot" && pwd) suite=${2:-bookworm}
for p in debootstrap chroot lintian autopkgtest; do
    command -v $p >/dev/null || {
        echo "deb.sh: $p is not installed" >&2
        exit 2
    }
done
# mounts are seen by this process and its children alone, and end with them
[ -n "${SPX_UNSHARED:-}" ] || exec unshare --mount env SPX_UNSHARED=1 "$0" "$@"
work=$(mktemp -d)
trap 'umount -R "$work"/*/proc "$work"/*/dev "$work"/*"${cuda:-/none}" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

# fresh NAME: a chroot with /proc, /dev and the network's names
debootstrap --variant=minbase "$suite" "$work/clean" >"$out/debootstrap.log" 2>&1 || {
    tail "$out/debootstrap.log" >&2
    exit 2
}
fresh() {
    cp -a "$work/clean" "$work/$1"
    cp /etc/resolv.conf "$work/$1/etc/"
    mount -t proc proc "$work/$1/proc"
    mount --rbind --make-rslave /dev "$work/$1/dev"
}

fresh build
cuda=
nvcc=${NVCC-nvcc}
nvcc=$(command -v "${nvcc##* }" || true)
if [ -n "$nvcc" ]; then
    cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
    mkdir -p "$work/build$cuda"
    mount --rbind --make-rslave "$cuda" "$work/build$cuda"
fi
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
NVCC=${cuda:+$cuda/bin/nvcc} share/deb.sh "$out" "$work/build"
umount -R "$work/build/proc" "$work/build/dev" ${cuda:+"$work/build$cuda"}
rm -rf --one-file-system "$work/build"

# the source's debian/tests with the packages that were built
fresh test
mkdir "$work/source"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$work/source"
cp "$out/changelog" "$work/source/debian/changelog"
autopkgtest --no-built-binaries "$out"/specpipe_*.deb "$out"/python3-specpipe_*.deb "$work/source/" -- chroot "$work/test" \
    >"$out/autopkgtest.log" 2>&1 || {
    tail -n 40 "$out/autopkgtest.log" >&2
    exit 1
}
sed -n '/@@@ summary/,/^autopkgtest/p' "$out/autopkgtest.log" | grep -E 'PASS|FAIL|SKIP'
[ "$(grep -c '^Test-Command' debian/tests/control)" -eq \
    "$(sed -n '/@@@ summary/,/^autopkgtest/p' "$out/autopkgtest.log" | grep -c ' PASS$')" ]
