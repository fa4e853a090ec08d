#!/usr/bin/env bash
# tests/bench/shift-queue.sh [DEVICE...]: seconds an exposure of a queue of specx-shift, with and without a frame, beside
# two floors: the program's own seconds of reading an exposure, which one thread does, and those that `cat` takes for the
# bytes of its file. `make bench-shift-queue DEVICES="cpu cuda"` runs it; FIBERS (500), EXPOSURES (8), ARM (z).
set -euo pipefail
[ $# -gt 0 ] || set -- auto
n=${EXPOSURES:-8} fibers=${FIBERS:-500} arm=${ARM:-z}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir out

now() { date +%s.%N; }

specx-sim -q --arm "$arm" --fibers "$fibers" --sky-fibers $((fibers / 10)) --snr 5:30 --shift 0.06,0.05,0.01,0.01 \
    --psf-output psf.fits -o image.fits
fits2h5 -q image.fits psf.fits -o image.h5
specx-extract -q --device auto -o frame.h5 image.h5
cp image.h5 both.h5
h5copy -i frame.h5 -o both.h5 -s /frame -d /frame
for kind in image both; do
    for i in $(seq "$n"); do ln -s $kind.h5 $kind-"$i".h5; done
    begin=$(now)
    for i in $(seq "$n"); do cat $kind-"$i".h5 >/dev/null; done
    bytes=$(awk -v a="$begin" -v b="$(now)" -v n="$n" 'BEGIN { print (b - a) / n }')
    for device in "$@"; do
        begin=$(now)
        specx-shift -q -f --device "$device" --psf-only -o one.h5 $kind.h5
        first=$(now)
        specx-shift -v -f --device "$device" --psf-only -o out/ $kind-*.h5 2>queue.log || { cat queue.log; exit 1; }
        end=$(now)
        reading=$(awk '/: read: / { sum += $(NF - 1); n++ } END { print n ? sum / n : 0 }' queue.log)
        awk -v kind="$([ $kind = both ] && echo 'with its frame' || echo 'without a frame')" -v device="$device" -v n="$n" \
            -v one="$first $begin" -v all="$end $first" -v reading="$reading" -v bytes="$bytes" '
            BEGIN { split(one, o); split(all, a); alone = o[1] - o[2]; queue = ((a[1] - a[2]) - alone) / (n - 1)
                    printf "%s, %s: a process %.3f s, a queue %.3f s an exposure; it reads for %.3f s, cat for %.3f s\n",
                        kind, device, alone, queue, reading, bytes }'
    done
done
