# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the tables of coadds: information that they keep, velocities, and exposures that are not what they seem.
# truth.sh sources this file.

# expose NAME WIDTH NUMBER [SIM-OPTION...]: a frame of 10 stars, whose lines are WIDTH wider than 1, and whose resolution
# matrix says so
expose() {
    specx-sim -q -f --arm r --seed $((seed + 4)) --noise-seed $((10 * seed + $3 - 10)) --expid "$3" --fibers 10 --sky-fibers 0 --no-sky --cosmics 0 \
        --bad-columns 0 --snr 20:60 --wavelength 6400,6700 --shift "0,0,0,$2" "${@:4}" --truth truth.h5 -o image.h5
    h5edit image.h5 delete /psf
    specx-extract -q -f --precision double -w 6400,6700,0.8 -o "$1.h5" image.h5 truth.h5
}

coadd_case() {
    local n name prototype options files
    printf '\n== coadd: information on velocities that simple coadds keep; error of a velocity, simple to optimal; S/N of a line\n'
    printf '   and part that optimal ones lose with 15, 21, 31, 41, 51 diagonals; 10 stars of arm r (helpers/coadd_truth)\n'
    for n in 1 2 3 4; do expose "equal$n" 0 "$n"; done
    expose w05 0.05 5
    expose w10 0.1 6
    expose w15 0.15 7
    expose w3 0.3 8
    expose w5 0.5 9
    expose deep 0.3 10 --exptime 3600 --snr 40:120
    row '' specpipe prototype ''
    while IFS='|' read -r name prototype options files; do
        # The options and files are words.
        # shellcheck disable=SC2086
        coadd_truth $options truth.h5 $files >"coadd.txt"
        row "$name" "$(awk '$1 == "simple" { printf "%.3f, %.3f", $2, $3 } $1 == "line" { printf ", %.3f", 1 / $3 }' coadd.txt)" \
            "$prototype" "$(awk '$1 == "optimal" && $2 < 60 { printf "%s ", $3 }' coadd.txt)"
        bad "$(awk '$1 == "optimal" && $2 == 15 { a = $3 } $1 == "optimal" && $2 == 41 { b = $3 } END { print (a > 2e-5 || b > 1e-8) }' coadd.txt)"
        awk -v name="$name" 'BEGIN { print "\"" name "\"" } $1 == "optimal" { print $2, $3 } END { print "\n" }' coadd.txt >>lost.txt
    done <<'END'
4, equal|1.000, 1.000||equal1.h5 equal2.h5 equal3.h5 equal4.h5
4, equal, 5 % masked|1.000, 1.000|--mask 0.05|equal1.h5 equal2.h5 equal3.h5 equal4.h5
4, widths 1, 1.05, 1.10, 1.15|0.982, 1.009||equal1.h5 w05.h5 w10.h5 w15.h5
the same, 5 % masked|0.982, 1.009|--mask 0.05|equal1.h5 w05.h5 w10.h5 w15.h5
2, widths 1, 1.3|0.782, 1.13; line 0.994||equal1.h5 w3.h5
2, widths 1, 1.5|0.625, 1.26||equal1.h5 w5.h5
2, widths 1, 1.3, the wide one 4 x deeper|0.733, 1.17||equal1.h5 deep.h5
END
    if command -v gnuplot >/dev/null; then
        gnuplot <<'END'
set terminal pngcairo size 900,600
set output 'coadd.png'
set title 'optimal coadds: information on velocities that is lost'
set xlabel 'diagonals of the resolution matrix'
set logscale y
set format y '10^{%T}'
plot for [i=0:6] 'lost.txt' index i using 1:2 with linespoints title columnheader(1), 1e-8 lt 0 title '10^{-8}'
END
    fi
    printf '\n== coadd: velocities of coadds and of joint fits, and exposures that are not what they seem (science/coadd.sh %s)\n' "$seeds"
    "$here/science/coadd.sh" "$seeds" equal masks widths wide-1.3 wide-1.5 deep ivar moved sky hits flagged grey tilt || failed=1
}
