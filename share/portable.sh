#!/usr/bin/env bash
# portable.sh BUILD ARCHIVE: one archive of what was built with PORTABLE=1 in BUILD, for any x86-64 Linux with glibc 2.36 or
# newer, with an NVIDIA driver or none. Run by `make portable` in the root of the repository.
#
# The archive has one folder that may lie anywhere: bin, lib and share as `make install` makes them. Programs contain their
# libraries; those that they load are in lib/specpipe/private, where their DT_RPATH leads ($ORIGIN), and the libraries'
# own libraries, too. cuBLAS and cuSOLVER, which the backend of h5svd needs, are too large: the system's are taken, if any.
#
# The same source and the same compiler give the same bytes: times are that of the last release in CHANGELOG.md, or
# SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C

[ $# -eq 2 ] || {
    echo "usage: portable.sh BUILD ARCHIVE" >&2
    exit 2
}
build=$1 archive=$2
newest_glibc=2.36
day=$(sed -n 's/^## .*(\([0-9-]*\)).*/\1/p' CHANGELOG.md | head -n 1)
time=${SOURCE_DATE_EPOCH:-$(date -u -d "$day" +%s)}
name=$(basename "$archive" .tar.xz)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
top=$stage/$name
private=$top/lib/specpipe/private

fail() {
    echo "portable.sh: $*" >&2
    exit 1
}

# As quiet as make itself, with the variables of the build.
"${MAKE:-make}" -s --no-print-directory BUILD="$build" PORTABLE=1 PREFIX= DESTDIR="$top" install >/dev/null
mkdir -p "$private"
find "$top/bin" -type f -exec strip {} +
find "$top/lib" -name '*.so' -exec strip --strip-unneeded {} +

# ---- libraries: those that programs and plug-ins need or load, without glibc's and the driver's ----

# needs FILE...: names of what they are linked with, and where that is
needs() { ldd "$@" 2>/dev/null | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p'; }
ours='^(libgomp|libgcc_s|libstdc\+\+|libgfortran|libquadmath|libopenblas|liblapacke|liblapack|libblas|libtmglib)\.so'
glibc='^(libc|libm|libdl|libpthread|librt|libresolv|ld-linux-x86-64)\.so|^libcu|^libnv'
loaded=$(/sbin/ldconfig -p | awk '/x86-64/ && ($1 == "libopenblas.so.0" || $1 == "liblapacke.so.3") { print $NF }' | sort -u)
[ "$(wc -l <<<"$loaded")" -eq 2 ] || fail "libopenblas.so.0 and liblapacke.so.3 are not installed"
# one word a file
# shellcheck disable=SC2086
{
    for f in $loaded; do echo "$(basename "$f") $f"; done
    needs "$top"/bin/* "$top"/lib/specpipe/*.so $loaded
} | sort -u | grep -vE "$glibc" >"$stage/libraries"
while read -r soname file; do
    [[ $soname =~ $ours ]] || fail "$soname: a library that no rule takes into the archive: $file"
    install -m 644 "$(realpath "$file")" "$private/$soname"
    # the terms of each, as Debian has them
    file=$(realpath "$file")
    package=$(dpkg-query -S "$file" "${file#/usr}" 2>/dev/null | sed 's/:.*//;q') || true
    [ -z "$package" ] || cp -L "/usr/share/doc/$package/copyright" "$top/share/doc/specpipe/copyright-$package"
done <"$stage/libraries"
for package in libhdf5-dev libfftw3-dev libqhull-dev liberfa-dev zlib1g-dev libaec-dev; do
    [ ! -e "/usr/share/doc/$package/copyright" ] ||
        cp -L "/usr/share/doc/$package/copyright" "$top/share/doc/specpipe/copyright-$package"
done

# ---- what the archive asks of a system ----

wanted=$(find "$top/bin" "$top/lib" -type f -exec objdump -T {} + 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "GLIBC_$newest_glibc" "$wanted" | sort -V | tail -n 1)" = "GLIBC_$newest_glibc" ] ||
    fail "$wanted is needed: build on a system with glibc $newest_glibc, such as Debian 12"
for f in "$top"/bin/*; do
    [[ $(objdump -p "$f") == *RPATH*\$ORIGIN/../lib/specpipe/private* ]] || fail "$f: was not built with PORTABLE=1"
done

# ---- the archive: a dictionary that holds what the programs have in common ----

chmod -R u=rwX,go=rX "$top"
mkdir -p "$(dirname "$archive")"
tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --format=ustar -C "$stage" -cf - "$name" |
    xz -T1 --lzma2=preset=2,dict=64MiB >"$archive.part"
mv "$archive.part" "$archive"
(cd "$(dirname "$archive")" && sha256sum "$(basename "$archive")")
