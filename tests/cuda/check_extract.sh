#!/bin/sh
# Builds the whole-trace extraction for the device at hand and checks it against the CPU: needs nvcc and a C compiler,
# but neither HDF5 nor CFITSIO, LAPACK or a network. SANITIZE=1 runs a small case under compute-sanitizer, too.
# Usage: tests/cuda/check_extract.sh [BUILD-FOLDER]
set -eu
cd "$(dirname "$0")/../.."
b=${1:-build/cuda}
mkdir -p "$b"
CC=${CC:-cc}
flags='-std=c11 -D_GNU_SOURCE -O2 -g -fopenmp -ffp-contract=off -fno-math-errno -Ilibcommon -Ikernels'
objects=
compile() {
    o=$b/$(basename "$1" .c).o
    objects="$objects $o"
    # shellcheck disable=SC2086
    $CC $flags ${2:-} -c "$1" -o "$o" &
}
for f in base/err base/mem base/progress base/stat base/wave blocks/psf_index blocks/cards; do compile "libcommon/$f.c"; done
for f in psf/psf extract/extract_common extract/extract_trace_cpu extract/extract_trace_plan; do
    compile "kernels/$f.c"
done
for f in kernels/sim/*.c; do compile "$f"; done
compile kernels/extract/extract_trace_base.c '-O3 -ffp-contract=fast'
compile kernels/extract/extract_trace_avx2.c '-O3 -ffp-contract=fast -mavx2 -mfma'
compile kernels/extract/extract_trace_avx512.c \
    '-O3 -ffp-contract=fast -mavx512f -mavx512dq -mavx2 -mfma -mprefer-vector-width=512'
compile tests/cuda/check_extract.c
nvcc -std=c++17 -O3 -lineinfo -gencode "arch=compute_${CU_ARCH:-90},code=sm_${CU_ARCH:-90}" -fmad=false \
    -Xcompiler -Wall,-Wextra,-fopenmp -D_GNU_SOURCE -Ilibcommon -Ikernels -c kernels/extract/extract_trace_cuda.cu \
    -o "$b/extract_trace_cuda.o"
wait
# shellcheck disable=SC2086
nvcc -o "$b/check_extract" $objects "$b/extract_trace_cuda.o" -Xcompiler -fopenmp -lm
[ -n "${BUILD_ONLY:-}" ] && exit
"$b/check_extract"
if [ -n "${SANITIZE:-}" ]; then
    for tool in memcheck racecheck initcheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$b/check_extract" small | tail -n 6
    done
fi
