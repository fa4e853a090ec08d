#!/usr/bin/env bash
# sky.sh CASE SEEDS [SIM-OPTION...] [-- SKY-OPTION...]: subtracts the sky of simulated exposures and compares what is left
# in held-out sky fibres, and the scales and shifts, with the truth (tests/helpers/sky_truth). CASE: z or r, an arm.
# SEEDS: FIRST:LAST, LAST included. One line: CASE, chi squared off lines, on lines and in the brightest 1 % of bins with
# their errors, then median and scatter of the pulls of t, of delta, of its slope and of kappa, of sky fibres and of others. The truth of
# t is that of the same fibres seeing a sky without noise: spots beside their traces lose light in the extraction (t against
# throughputs alone, arm r: 1.19 in place of 1.04).
#
# SKY_KEEP=NAME: the last frame, NAME-f.h5, and what was left of it, NAME-s.h5, for pictures.
#
#     sky.sh z 1:10                                      the right PSF
#     sky.sh z 1:10 --shift wave --fiber-scatter 0.02     traces that have moved, throughputs that flats do not know
set -euo pipefail
case=$1 seeds=$2
shift 2
sim=() sky=(--hold-out 15)
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    sim+=("$1")
    shift
done
[ $# -eq 0 ] || sky+=("${@:2}")
range=$([ "$case" = z ] && echo 8250,8850 || echo 6800,7400)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((seed = ${seeds%:*}; seed <= ${seeds#*:}; seed++)); do
    camera=(-q -f --arm "$case" --seed "$seed" --fibers 75 --cosmics 0 --bad-columns 0 --wavelength "$range")
    specx-sim "${camera[@]}" --sky-fibers 45 --snr 3:30 --truth "$work/t.h5" "${sim[@]}" -o "$work/i.h5"
    specx-extract -q -f -o "$work/f.h5" "$work/i.h5"
    specx-sky -q "${sky[@]}" -f -o "$work/s.h5" "$work/f.h5"
    [ -z "${SKY_KEEP:-}" ] || for n in f s; do cp "$work/$n.h5" "$SKY_KEEP-$n.h5"; done
    specx-sim "${camera[@]}" --sky-fibers 75 --no-noise "${sim[@]}" -o "$work/e.h5"
    specx-extract -q -f -o "$work/f.h5" "$work/e.h5"
    h5edit "$work/f.h5" scale /frame/ivar 400 # errors so small that no prior matters
    specx-sky -q "${sky[@]}" --hold-out 0 --reject 0 -f -o "$work/e.h5" "$work/f.h5"
    sky_truth "$work/s.h5" "$work/i.h5" "$work/t.h5" "$work/e.h5" >>"$work/all"
done
awk -v name="$case ${sim[*]:-}" '
    function middle(v, n, at) { return n ? v[int((n - 1) * at) + 1] : 0 }
    function robust(key,    n, v, i, m) {
        n = count[key]
        for (i = 1; i <= n; i++) v[i] = pull[key, i]
        n = asort_plain(v, n)
        m = middle(v, n, 0.5)
        return sprintf("%+.2f %.2f", m, (middle(v, n, 0.8413) - middle(v, n, 0.1587)) / 2)
    }
    function asort_plain(v, n,    i, j, x) {
        for (i = 2; i <= n; i++) {
            x = v[i]
            for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
            v[j + 1] = x
        }
        return n
    }
    $1 == "chi2" { n[$2] += $3; sum[$2] += $4 }
    $1 == "pull" { key = $2 ($3 == "SKY" ? " sky" : " others"); pull[key, ++count[key]] = $4 }
    END {
        printf "%s:", name
        split("off on top", class, " ")
        for (i = 1; i <= 3; i++)
            printf " %s %.3f +- %.3f", class[i], sum[class[i]] / n[class[i]], sqrt(2 / n[class[i]])
        split("t d d1 k", quantity, " ")
        for (i = 1; i <= 4; i++)
            if (count[quantity[i] " sky"])
                printf "; %s %s, %s", quantity[i], robust(quantity[i] " sky"), robust(quantity[i] " others")
        print ""
    }' "$work/all"
