# Double-lined stars (rvs-fit --components 2): how many are found, and how many single stars are taken for pairs; with
# figures. `make check-science`; some ten minutes of two cores.
load ../common
load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --step 0.1 --wavelength 4720,8900 --axis logg=1.5,2.5,3.5,4.5,5 \
        --axis feh=-2,-1.5,-1,-0.5,0,0.5 --axis alpha=0,0.4 \
        --axis teff=4000,4250,4500,4750,5000,5250,5500,5750,6000,6250,6500,6750,7000,7500
    fits2h5 -q stars | rvs-template -q --library-resolution none --setup b:4800:5500:0.4:FWHM=1.526 \
        --setup r:8400:8800:0.4:FWHM=1.526 -o t.h5
    rm -r stars
}

# pairs STARS SEED WORD...: a line a star: DOUBLE, DCHISQ_2, ratio, |difference of velocities|, teff, feh; in `stars`.
pairs() {
    sim_epochs "$1" 1 "$2" s.h5 teff=5000:6800 arm=b:4800:5500 arm=r:8400:8800 "${@:3}"
    rvs-fit -q -f -t "$BATS_FILE_TMPDIR/t.h5" --components 2 --no-model "--vrange=-900,900" -o rv.h5 s.h5
    paste -d' ' <(h5table --csv -c DOUBLE,DCHISQ_2 rv.h5 | tail -n +2 | tr , ' ') \
        <(h5table --csv -t /fibermap -c RATIO,VRAD,VRAD2,TEFF,FEH rv.h5 | tail -n +2 |
            awk -F, '{ d = $2 - $3; print $1, d < 0 ? -d : d, $4, $5 }') >stars
}

# share WHAT < stars: those that are found.
share() {
    awk -v what="$1" '{ n++; v += $1; if ($2 > top) top = $2 } END {
        printf "%s: %.2f +- %.2f %% of %d; largest DCHISQ_2 %.1f\n", what, 100 * v / n, 100 * sqrt((v + 1) * (1 - v / (n + 1))) / n, n, top }' >&3
}

@test "single stars: 0.1 % are taken for pairs" {
    pairs "${STARS:-3000}" 31 sn=10:60 vsini=0:60
    share "single, S/N 10 to 60, vsini 0 to 60 km/s" <stars
    awk '{ v += $1 } END { exit !(v <= 0.001 * NR + 3 * sqrt(0.001 * NR)) }' stars
    pairs 1000 32 sn=10:60 vsini=0:60 lines=0.15
    share "single, lines that no template has, up to 15 % deep" <stars
    awk '{ v += $1 } END { exit !(v <= 0.001 * NR + 3 * sqrt(0.001 * NR)) }' stars
    pairs 1000 35 sn=30:31 errors=1.3
    share "single, errors too small by 1.3" <stars
    awk '{ v += $1 } END { exit !(v <= 0.001 * NR + 3 * sqrt(0.001 * NR)) }' stars
}

@test "pairs, S/N 30: 95 % are found beyond 1.5 times the resolution, from a light ratio of 0.3 on" {
    # FWHM of 1.55 Angstrom: 90 km/s in the blue arm, 54 in the red one; 1.5 times the former
    pairs 600 33 sn=30:30.01 second=0.3:1 apart=133:500
    share "pairs" <stars
    awk '{ v += $1 } END { exit !(v / NR > 0.95 - 2 * sqrt(0.95 * 0.05 / NR)) }' stars
    awk '$3 < 0.5' stars | share "  light ratio 0.3 to 0.5"
    awk '$3 >= 0.5' stars | share "  light ratio 0.5 to 1"
    awk '$4 < 200' stars | share "  133 to 200 km/s apart"
    awk '$4 >= 200' stars | share "  200 to 500 km/s apart"
    awk '$5 < 5900' stars | share "  below 5900 K"
    awk '$5 >= 5900 && $6 >= -1' stars | share "  above 5900 K, [Fe/H] above -1"
    awk '$5 >= 5900 && $6 < -1' stars | share "  above 5900 K, [Fe/H] below -1"
    # velocities and the logarithm of the light ratio, where it tells which star is the brighter one
    paste -d' ' <(column DOUBLE,VRAD1,VRAD1_ERR,VRAD2,VRAD2_ERR,FLUX_RATIO,FLUX_RATIO_ERR rv.h5) \
        <(column VRAD,VRAD2,RATIO rv.h5 /fibermap) |
        awk '$1 && $10 < 0.85 { print $2, $3, $8, $4, $5, $9, log($6), $7 / $6, log($10) }' >found
    for k in 1:VRAD1 4:VRAD2 7:ln_FLUX_RATIO; do
        cut -d' ' -f "${k%:*}-$((${k%:*} + 2))" found | tell_pulls "pairs, ${k#*:}"
        awk '{ exit !($1 * $1 < (0.2 + 3 * $2)^2 && ($3 - 1)^2 < (0.1 + 3 * $4)^2) }' pulls
    done
}
