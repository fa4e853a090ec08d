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
        'specx-extract -q -j 1 -o out/ frames/*.h5 --wavelength 6400,6420,0.8 --spectra 0:2' \
        'specx-shift -q -j 1 -o out/ frames/*.h5 --wavelength 6420,6580,0.8 --psf-only'; do
        case $w in
        *' -o '*) cases+=("$w --device cuda:0 --reproducible -f") ;;
        burgers* | h5reduce* | h5stack* | h5svd* | rvs-fit* | specx-extract* | specx-flat* | specx-flux* | specx-psf* | \
            specx-shift* | specx-sky* | *--coadd* | *--train-nn*) cases+=("$w --device cuda:0 --reproducible -f -o out/product") ;;
        esac
    done
}

# frames_of N: a queue of images, frames/1.h5 and so on.
frames_of() {
    local n
    mkdir frames
    for ((n = 1; n <= $1; n++)); do cp "$d/image-r0.h5" "frames/$n.h5"; done
}

# emulated_run CASE: kept_run, of a command that comes as far as launching kernels. cuBLAS, which h5svd asks for first,
# does not open on an emulated device.
# shellcheck disable=SC2317
emulated_run() {
    rm -f count
    kept_run "$1"
    grep -qs '^launch [1-9]' count || [[ $1 == h5svd* && $right_status == 5 ]] && return
    wrong "launches no kernel, status $right_status: $1: $(<stderr)"
    return 1
}

# on_device: has sweep() fail calls of CUDA, on a real device or on the emulated one, where the programs may refuse what the
# kernels did not make.
on_device() {
    inject=$SPX_BUILD/tests/trust/cuda_faults.so failing='4 5'
    under=("SPX_BACKENDS=$SPX_BUILD/tests/trust/cuda")
    if [ -n "${SPX_CUDA_RUNTIME:-}" ]; then
        under+=("SPX_CUDA_RUNTIME=$SPX_CUDA_RUNTIME")
    else
        undisturbed=emulated_run
        mkdir driver && ln -s "$inject" driver/libcuda.so.1 # programs look whether there is a driver
        under+=("LD_LIBRARY_PATH=$PWD/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
    fi
}

class cuda 41 "calls of CUDA fail (memory, copy, launch, wait); the device disappears"
class_cuda() {
    on_device
    frames_of 2
    cuda_cases
    sweep any:on memory ask host copy launch wait stream graph
}

class cuda-lost 7 "one of two devices disappears in a queue"
# The other device does all frames, as if there were no other.
class_cuda-lost() {
    local c n device
    if [ -n "${SPX_CUDA_RUNTIME:-}" ] && [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then
        soft "there is one device only"
        return
    fi
    on_device
    [ -e "$inject" ] || {
        wrong "$inject was not built"
        return
    }
    frames_of 4
    c='specx-extract -q -j 1 --device cuda:0,1 --wavelength 6400,6420,0.8 --spectra 0:2 --reproducible -f -o out/ frames/*.h5'
    with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT_COUNT=$PWD/count")
    "$undisturbed" "$c" || return
    for ((n = 4; n <= 43; n++)); do # the first three: which devices are there?
        for device in 0 1; do
            turn || continue
            with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT=any:$n:on@$device")
            disturbed "$c"
            if grep -q 'has failed' stderr; then
                grep -v 'has failed' stderr >rest
                mv rest stderr
            fi
            judge "$c" "any:$n:on@$device"
        done
    done
}

class cuda-full 11 "other programs have all memory of the device for a while"
# Programs wait for it, before their context or for what their work needs, say so, and make the same product.
class_cuda-full() {
    local c f how
    on_device
    frames_of 2
    cuda_cases
    for c in "${cases[@]}"; do
        # cuBLAS does not open on an emulated device
        [ -n "${SPX_CUDA_RUNTIME:-}" ] || [[ $c != h5svd* ]] || continue
        c=${c/ -q/}
        for how in full:25 filled:25; do
            turn || continue
            with=("LD_PRELOAD=$inject" "${under[@]}")
            kept_run "$c"
            with+=("SPX_INJECT=$how")
            disturbed "$c"
            f=
            [ "$status" -ne 0 ] || f=$(diff -rq right out 2>&1)
            if [ "$status" -ne "$right_status" ] || [ -n "$f" ]; then
                wrong "$how: $c: status $status, not $right_status; $f $(head -c 300 stderr)"
            elif ! grep -q 'waits for .*memory.*other programs have' stderr; then
                wrong "$how: $c: says nothing of a wait: $(head -c 300 stderr)"
            else
                ok
            fi
        done
    done
}
