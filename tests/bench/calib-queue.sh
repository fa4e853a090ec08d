#!/usr/bin/env bash
# tests/bench/calib-queue.sh [DEVICE...]: seconds an exposure of queues of the programs of calibrated spectra: specx-shift
# with and without a frame, specx-flat --apply, specx-sky, specx-flux, and h5merge --coadd=optimal, an exposure more.
# Beside these two floors: the program's own seconds of reading an exposure, which one thread does, and those that `cat`
# takes for the bytes of its file. The response and the flat field themselves, which are no queues, have a line each.
# `make bench-calib-queue DEVICES="cpu cuda"` runs it; FIBERS (500), EXPOSURES (8), ARM (z), PROGRAMS ("shift flat sky
# flux coadd").
set -euo pipefail
[ $# -gt 0 ] || set -- auto
n=${EXPOSURES:-8} fibers=${FIBERS:-500} arm=${ARM:-z} programs=" ${PROGRAMS:-shift flat sky flux coadd} "
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir out

now() { date +%s.%N; }

wants() {
    local p
    for p; do [[ $programs != *" $p "* ]] || return 0; done
    return 1
}

# links FILE: FILE-1.h5 ... FILE-$n.h5; seconds that cat takes for one of them, in $bytes
links() {
    local i begin
    for i in $(seq "$n"); do ln -sf "$1.h5" "$1-$i.h5"; done
    begin=$(now)
    for i in $(seq "$n"); do cat "$1-$i.h5" >/dev/null; done
    bytes=$(awk -v a="$begin" -v b="$(now)" -v n="$n" 'BEGIN { print (b - a) / n }')
}

# queue WORDS FILE PROGRAM OPTION...: one exposure, and the queue of all
queue() {
    local words=$1 file=$2 device begin first
    shift 2
    for device in $devices; do
        begin=$(now)
        "$@" -q -f --device "$device" -o one.h5 "$file.h5"
        first=$(now)
        "$@" -v -f --device "$device" -o out/ "$file"-*.h5 2>queue.log || { cat queue.log; exit 1; }
        report "$words, $device" "$begin" "$first" "$(now)" "$n"
    done
}

# report WORDS BEGIN FIRST END N
report() {
    awk -v words="$1" -v b="$2" -v f="$3" -v e="$4" -v n="$5" -v bytes="$bytes" '
        /: read: / { sum += $(NF - 1); reads++ }
        END { alone = f - b
              printf "%s: a process %.3f s, a queue %.3f s an exposure; it reads for %.3f s, cat for %.3f s\n", words,
                  alone, (e - f - alone) / (n - 1), (reads ? sum / reads : 0), bytes }' queue.log
}

# once WORDS PROGRAM OPTION...: a process that is no queue
once() {
    local words=$1 device begin
    shift
    for device in $devices; do
        begin=$(now)
        "$@" -q -f --device "$device"
        printf '%s, %s: a process %.3f s\n' "$words" "$device" "$(awk -v a="$begin" -v b="$(now)" 'BEGIN { print b - a }')"
    done
}

devices=$*
set --
wants shift sky flux coadd &&
    specx-sim -q --arm "$arm" --fibers "$fibers" --sky-fibers $((fibers / 10)) --snr 5:30 --teff 5600:6800 \
        --logg 3.7:4.4 --feh -1.5:-0.3 --alpha 0 --shift 0.06,0.05,0.01,0.01 --psf-output psf.fits -o image.fits &&
    fits2h5 -q image.fits psf.fits -o image.h5 &&
    specx-extract -q --device auto -o frame.h5 image.h5
if wants shift; then
    cp image.h5 both.h5
    h5copy -i frame.h5 -o both.h5 -s /frame -d /frame
    links image
    queue "specx-shift without a frame" image specx-shift --psf-only
    links both
    queue "specx-shift with its frame" both specx-shift --psf-only
fi
if wants flat; then
    specx-sim -q --arm "$arm" --fibers "$fibers" --flat --throughput 0.1 --psf-output lamp-psf.fits -o lamp.fits
    fits2h5 -q lamp.fits lamp-psf.fits | specx-extract -q --device auto -o lamp.h5
    for i in 1 2 3; do ln -s lamp.h5 "three-$i.h5"; done
    once "specx-flat of three exposures" specx-flat -o flat.h5 three-?.h5
    links lamp
    queue "specx-flat --apply" lamp specx-flat --apply flat.h5
fi
if wants sky; then
    links frame
    queue specx-sky frame specx-sky
fi
if wants flux; then
    specx-sky -q -f -o sframe.h5 frame.h5
    specx-sim -q --library stars --wavelength 3500,10000 --axis teff=5400,6000,6600,7000 --axis logg=3.5,4.5 \
        --axis feh=-2,-1,0
    range=$(h5dump -A 0 -d /frame/wavelength -w 1 -m %.1f -y sframe.h5 | sed -n 's/^ *\([0-9][0-9.]*\),\{0,1\}$/\1/p' |
        awk 'NR == 1 { first = $1 } END { print first - 20 ":" $1 + 20 }')
    fits2h5 -q stars | rvs-template -q --norm median --setup "$arm:$range:0.4:FWHM=1.0" -o templates.h5
    rvs-fit -q -t templates.h5 --resolution-matrix --with-template --rows 10:30 -o fit.h5 sframe.h5
    once "specx-flux, the response" specx-flux --fit fit.h5 -o response.h5 sframe.h5
    links sframe
    queue "specx-flux --apply" sframe specx-flux --apply response.h5
fi
if wants coadd; then
    for i in $(seq "$n"); do # in the header's words
        LC_ALL=C sed "s/EXPID   =                    1/EXPID   = $(printf %20d "$i")/" frame.h5 >"exposure-$i.h5"
    done
    merge=(h5merge -q -f --no-verify --allow-topocentric --coadd=optimal)
    for device in $devices; do
        begin=$(now)
        "${merge[@]}" --device "$device" -o one.h5 exposure-1.h5 exposure-2.h5
        first=$(now)
        "${merge[@]}" --device "$device" -o all.h5 exposure-*.h5
        awk -v device="$device" -v b="$begin" -v f="$first" -v e="$(now)" -v n="$n" '
            BEGIN { printf "h5merge --coadd=optimal, %s: two exposures %.3f s, %d more %.3f s each\n", device, f - b,
                        n - 2, (e - f - (f - b)) / (n - 2) }'
    done
fi
