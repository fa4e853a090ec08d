# Spectra beside a star that is 1000 times brighter, with a PSF that has a tail: pulls of the fibres next to it, and of others.
load ../common

# pulls LABEL FILE...: mean pull, its error, scatter, of the bins of frames; leaves them in `pulls`.
pulls() {
    local f
    for f in "${@:2}"; do frame_truth "$f" truth.h5; done |
        awk '$1 == "clean" { n += $2; sum += $2 * $5; sum2 += $2 * ($9 ^ 2 + $5 ^ 2) }
            END { m = sum / n; s = sqrt(sum2 / n - m * m); print m, s / sqrt(n), s, n }' >pulls
    awk -v label="$1" '{ printf "%s: (flux - truth) / error: mean %+.3f +- %.3f, scatter %.3f, %d bins\n", label, $1, $2, $3, $4 }' \
        pulls >&3
}

# 1 % of the light in the tail: how far it moves the neighbours by itself, and what is left
@test "tails of 1 %: neighbours of a star 1000 times brighter" {
    local seed side beside=() far=() none=()
    seq 5700 0.5 6600 | awk '{ print $1, 100 * (1 + 0.3 * sin($1 / 3)) }' >faint
    awk '{ print $1, 1000 * $2 }' faint >bright
    for seed in $(seq 25); do [ "$seed" = 13 ] && echo bright || echo faint; done >stars
    for seed in ${TAIL_SEEDS:-1 2 3 4}; do
        specx-sim -q --arm r --wavelength 5850,6450 --no-sky --noise-seed "$seed" --camera tail=0.0006,tail-index=2.2 \
            --format hdf5 --truth truth.h5 -f -o image.h5 stars
        for side in 11 13; do
            specx-extract -q -w 5870,6430,0.8 --spectra $side:$((side + 1)) -o "beside$seed-$side.h5" image.h5
            specx-extract -q -w 5870,6430,0.8 --tail none --spectra $side:$((side + 1)) -o "none$seed-$side.h5" image.h5
            beside+=("beside$seed-$side.h5")
            none+=("none$seed-$side.h5")
        done
        specx-extract -q -w 5870,6430,0.8 --spectra 0:11 -o "far$seed.h5" image.h5
        far+=("far$seed.h5")
    done
    h5table --provenance "${far[0]}" | grep -q 'tail_light=0.010'
    pulls "the tail left" "${none[@]}"
    awk '{ exit !($1 > 2) }' pulls # else the test shows nothing
    pulls "tail taken off, next fibres" "${beside[@]}"
    awk '{ exit !($1 ^ 2 < (0.1 + 2 * $2) ^ 2 && $3 > 0.95 && $3 < 1.05) }' pulls
    pulls "tail taken off, others" "${far[@]}"
    awk '{ exit !($1 ^ 2 < (0.02 + 2 * $2) ^ 2 && $3 > 0.97 && $3 < 1.03) }' pulls
}
