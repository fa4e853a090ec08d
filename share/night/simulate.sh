#!/usr/bin/env bash
# simulate.sh FOLDER: the input of a night whose truth is known, in DESI's layout: arc, flat and exposures of stars by all
# cameras of some petals, their PSFs, templates, and settings for reduce.mk (night.mk). The last exposure sees another tile, the others see the same stars.
# Traces have moved, fibres differ, hits are not flagged. The environment sets
#
#     NIGHT=20201214 EXPOSURES=3 PETALS=1 FIBRES=50 SEED=1     the size of the night; every fifth fibre sees the sky
#     FAULTS="dead corrupt psf"     camera b0 without light in the first exposure; a broken file of camera r0, second
#                                   exposure; no PSF of camera z0
#     WIDTH=600                     Angstrom of each arm; whole: all of it
set -euo pipefail
folder=$1
night=${NIGHT:-20201214} exposures=${EXPOSURES:-3} petals=${PETALS:-1} fibres=${FIBRES:-50} seed=${SEED:-1}
faults=" ${FAULTS-dead corrupt psf} "
mkdir -p "$folder"
cd "$folder"
declare -A range=([b]='3600,5800' [r]='5760,7620' [z]='7520,9824') middle=([b]=4700 [r]=6500 [z]=8550)
if [ "${WIDTH:=600}" != whole ]; then
    for arm in b r z; do
        range[$arm]=$((${middle[$arm]} - WIDTH / 2)),$((${middle[$arm]} + WIDTH / 2))
    done
fi

# Images of as many cameras at a time as have four processors each.
processors=$(env -u OMP_NUM_THREADS nproc)
most=$((processors < 8 ? 1 : processors / 4)) running=0
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((processors / most))}
# camera PETAL ARM: all images of a camera, begun when fewer than that are at work
camera() {
    if [ $running -eq $most ]; then
        wait -n
        running=$((running - 1))
    fi
    images_of "$@" &
    running=$((running + 1))
}

# image PETAL ARM EXPID [OPTION...]: one image
image() {
    local name
    name=preproc/$night/$(printf '%08d' "$3")
    mkdir -p "$name"
    specx-sim -q -f --arm "$2" --petal "$1" --fibers "$fibres" --sky-fibers $((fibres / 5)) --wavelength "${range[$2]}" \
        --instrument-seed $((1000 * seed + $1)) --shift wave --throughput 0.1 --expid "$3" \
        --noise-seed $((100000 * seed + 10 * $3 + $1)) "${@:4}" -o "$name/preproc-$2$1-$(printf '%08d' "$3").fits"
}

images_of() {
    local p=$1 arm=$2 e tile light
    image "$p" "$arm" 1 --arc all --psf-output "psf/$night/psf-$arm$p.fits"
    image "$p" "$arm" 2 --flat
    for ((e = 1; e <= exposures; e++)); do
        tile=$((e > 1 && e == exposures ? 101 : 100))
        light=(--snr 20:80)
        if [[ $faults == *' dead '* ]] && [ "$arm$p$e" = b01 ]; then
            light=(--no-sky --mag 60)
        fi
        # Stars of a tile and petal are one seed.
        image "$p" "$arm" $((e + 2)) --seed $((1000 * seed + 10 * tile + p)) --tile $tile --standards $((fibres / 5)) \
            --mjd "$(awk -v e=$e 'BEGIN { printf "%.4f", 59197.31 + 0.012 * (e % 28) + int(e / 28) }')" --fiber-scatter 0.02 --sky-lines 0.2 \
            --no-flag-cosmics --tellurics 1 --teff 4800:6800 --logg 3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 \
            --truth "truth/$arm$p-$tile.h5" "${light[@]}"
    done
}

# Where one fails, the others end.
give_up() {
    local status=$?
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait
    exit $status
}
trap give_up EXIT
mkdir -p psf/"$night" truth
for ((p = 0; p < petals; p++)); do
    for arm in b r z; do
        camera $p $arm
    done
done
for (( ; running > 0; running--)); do wait -n; done
trap - EXIT
for arm in b r z; do
    echo "BINS_$arm = ${range[$arm]},0.8"
done >night.mk
if [[ $faults == *' psf '* ]]; then
    mv psf/"$night"/psf-z0.fits psf/"$night"/lost-z0.fits
fi
if [[ $faults == *' corrupt '* ]] && [ "$exposures" -gt 1 ]; then
    broken=preproc/$night/00000004/preproc-r0-00000004.fits
    cp "$broken" whole-r0-00000004.fits
    truncate -s 100000 "$broken"
fi

# Templates with a narrow line-spread function: fits bring them to the resolution of each spectrum.
setups=()
for arm in b r z; do
    setups+=(--setup "$arm:$((${range[$arm]%,*} - 10)):$((${range[$arm]#*,} + 10)):0.4:FWHM=1.1774")
done
rm -rf stars
specx-sim -q --library stars --wavelength $((${range[b]%,*} - 100)),$((${range[z]#*,} + 100)) \
    --axis teff=4500,5000,5500,6000,6500,7000 --axis logg=3,3.5,4,4.5,5 --axis feh=-1.5,-1,-0.5,0 --axis alpha=0,0.4
fits2h5 -q --vacuum stars -o stars.h5 -f
rvs-template -q -f --norm median "${setups[@]}" -o continuum.h5 stars.h5
rvs-template -q -f "${setups[@]}" -o templates.h5 stars.h5
rm -rf stars stars.h5
