# shellcheck shell=bash
# Calls of CUDA's runtime that fail (tests/trust/cuda_faults.cpp): each call of each command in turn. The run ends with
# status 5 or 4, a message of one line and the old output, or as without the failure. Where SPX_CUDA_RUNTIME names
# libcudart.so, on a real device; without it on one that is emulated, whose kernels do nothing: there the failure of
# a call is seen, not what the kernels made.
# shellcheck disable=SC2154,SC2034

# Commands that have kernels.
# shellcheck disable=SC2016
cuda_cases() {
    cases=()
    local w
    for w in "${writers[@]}" 'h5merge -q --coadd=optimal $d/frame-b0.h5' 'h5merge -q --coadd=simple $d/frame-b0.h5' \
        'rvs-template -q -j 1 --train-nn --nn-epochs 20 $d/library.h5 --setup r:6400:6600:0.5:FWHM=1.8' \
        'specx-extract -q -j 1 $d/image-r0.h5 $d/image-b0.h5 --wavelength 6400,6420,0.8 --spectra 0:2'; do
        case $w in
        burgers* | h5reduce* | h5stack* | h5svd* | rvs-fit* | specx-extract* | specx-flat* | specx-flux* | specx-shift* | \
            specx-sky* | *--coadd* | *--train-nn*) cases+=("$w --device cuda --reproducible -f -o out/product") ;;
        esac
    done
}

# cuda_backend: `backend`, the environment of programs whose calls of CUDA fail. False, and wrong, when it was not built.
cuda_backend() {
    local faults=$SPX_BUILD/tests/trust
    [ -e "$faults/cuda_faults.so" ] || {
        wrong "$faults/cuda_faults.so was not built: nvcc is missing"
        return 1
    }
    backend=("LD_PRELOAD=$faults/cuda_faults.so" "SPX_BACKENDS=$faults/cuda" OMP_NUM_THREADS=1)
    if [ -n "${SPX_CUDA_RUNTIME:-}" ]; then
        backend+=("SPX_CUDA_RUNTIME=$SPX_CUDA_RUNTIME")
    else
        mkdir driver && ln -s "$faults/cuda_faults.so" driver/libcuda.so.1 # programs look whether there is a driver
        backend+=("LD_LIBRARY_PATH=$PWD/driver")
    fi
}

# cuda_right_run CASE: as right_run; on the emulated device the programs may refuse what the kernels did not make.
cuda_right_run() {
    with=("${backend[@]}" "SPX_INJECT_COUNT=$PWD/count")
    if [ -n "${SPX_CUDA_RUNTIME:-}" ]; then
        right_run "$1"
    else
        kept_run "$1"
    fi
}

class cuda 41 "calls of CUDA fail (memory, copy, launch, wait); the device disappears"
class_cuda() {
    local c class way total n failing='4 5' cases
    local -a backend
    cuda_backend || return
    cuda_cases
    for c in "${cases[@]}"; do
        cuda_right_run "$c" || continue
        for class in any:on memory ask host copy launch wait stream graph; do
            way=${class#"${class%%:*}"} class=${class%%:*}
            total=$(sed -n "s/^$class //p" count)
            for ((n = 1; n <= total; n++)); do
                turn || continue
                with=("${backend[@]}" "SPX_INJECT=$class:$n$way")
                disturbed "$c"
                judge "$c" "$class:$n$way of $total"
            done
        done
    done
}

class cuda-lost 7 "one of two devices disappears in a queue"
# The other device does all frames, as if there were no other.
class_cuda-lost() {
    local c n device
    local -a backend
    if [ -n "${SPX_CUDA_RUNTIME:-}" ] && [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then
        soft "there is one device only"
        return
    fi
    cuda_backend || return
    mkdir frames
    for n in 1 2 3 4; do cp "$d/image-r0.h5" "frames/$n.h5"; done
    c='specx-extract -q -j 1 --device cuda:0,1 --wavelength 6400,6420,0.8 --spectra 0:2 --reproducible -f -o out/ frames/*.h5'
    cuda_right_run "$c" || return
    for ((n = 6; n <= 45; n++)); do # the first five: which devices are there?
        for device in 0 1; do
            turn || continue
            with=("${backend[@]}" "SPX_INJECT=any:$n:on@$device")
            disturbed "$c"
            if grep -q 'has failed' stderr; then
                grep -v 'has failed' stderr >rest
                mv rest stderr
            fi
            judge "$c" "any:$n:on@$device"
        done
    done
}
