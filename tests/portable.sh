#!/usr/bin/env bash
# portable.sh BUILD [SUITE]: archive and wheel of `make wheel` are the same, byte by byte, when they are made in another folder;
# the archive's programs give the same numbers, in a bare chroot of a release that was not built on, from any folder, as here,
# and so do the wheel's in a Python environment. Run by `make check-portable` in the root of the repository. Needs root,
# debootstrap and python3-venv; takes minutes.
set -euo pipefail

build=$(mkdir -p "$1" && cd "$1" && pwd) suite=${2:-trixie}
archive=specpipe-$(cat VERSION)-x86_64
wheel=specpipe-$(cat VERSION)-py3-none-manylinux_2_36_x86_64.whl
for p in debootstrap chroot; do
    command -v $p >/dev/null || {
        echo "portable.sh: $p is not installed" >&2
        exit 2
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${MAKE:-make}" -s BUILD="$build" wheel
mkdir "$work/elsewhere"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$work/elsewhere"
[ ! -e config.mk ] || cp config.mk "$work/elsewhere/" # compiler and architectures are of this folder
"${MAKE:-make}" -s -C "$work/elsewhere" BUILD=out wheel
cmp "$build/$archive.tar.xz" "$work/elsewhere/out/$archive.tar.xz"
cmp "$build/$wheel" "$work/elsewhere/out/$wheel"
echo "the same bytes in another folder: $(stat -c %s "$build/$archive.tar.xz"), $(stat -c %s "$build/$wheel")"

debootstrap --variant=minbase "$suite" "$work/bare" >"$work/log" 2>&1 || {
    tail "$work/log" >&2
    exit 2
}
mkdir -p "$work/bare/any where/deep" "$work/bare/data" "$work/here"
tar -xf "$build/$archive.tar.xz" -C "$work/bare/any where/deep"
# The README's tutorial, without the programs of others.
awk -f share/tutorial.awk README.md | sed -n 's/^\$ //p' | grep -vE '^(h5ls|specplot) ' >"$work/commands"
printf '%s\n' 'h5svd --method randomised --rank 4 frame-r0.h5:/frame/flux -o svd.h5' 'h5check svd.h5 rv.h5' \
    'specpipe-info --device cpu | sed -n "/^specpipe:/p; /^backend/p"' >>"$work/commands"
cp "$work/commands" "$work/bare/data/"
(cd "$work/here" && PATH=$build/portable/bin:$PATH OMP_NUM_THREADS=2 bash -euo pipefail "$work/commands" >"$work/wanted" 2>/dev/null)
# The wheel, without the packages that its Python part needs: the programs do without.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-index --no-deps "$build/$wheel"
mkdir "$work/pip"
(cd "$work/pip" && PATH=$work/venv/bin:/usr/bin:/bin OMP_NUM_THREADS=2 bash -euo pipefail "$work/commands" >"$work/got" 2>/dev/null)
cmp "$work/wanted" "$work/got" || {
    diff "$work/wanted" "$work/got" | head >&2
    exit 1
}
echo "the same numbers from the wheel"
# The loader asks /proc where a program lies ($ORIGIN); it is mounted for this one alone. Expanded by the inner bash:
# shellcheck disable=SC2016
unshare --mount bash -euo pipefail -c 'mount -t proc proc "$0/proc"
    exec chroot "$0" /usr/bin/env -i PATH="$1:/usr/bin:/bin" OMP_NUM_THREADS=2 bash -euo pipefail -c "cd /data && . ./commands"' \
    "$work/bare" "/any where/deep/$archive/bin" >"$work/got"
cmp "$work/wanted" "$work/got" || {
    diff "$work/wanted" "$work/got" | head >&2
    exit 1
}
[ "$(wc -l <"$work/got")" -gt 20 ]
echo "the same numbers in $suite: $(chroot "$work/bare" ldd --version | sed -n 1p)"
