# A made-up instrument from raw exposures to velocities, as specpipe-instrument(7) has it, whose examples tests/man.bats runs.
# 120 fibres and many stars: tests/science/instrument.bats.

load common
load instrument

@test "a made-up instrument: velocities are right within their errors" {
    calibrate 5,7,3
    h5table -q --csv -c STATUS,CHI2,NLINE -t /psffit/fibre psf.h5 | awk -F, '
        NR > 1 && !(($1 == 0 || $1 == 4) && $2 > 0.8 && $2 < 1.2 && $3 >= 15) { print; exit 1 }'
    # the traces that were drawn: from there nothing moves, in errors of a line's place
    specx-sim -q "${camera[@]}" --no-noise --flat -o true.h5
    specx-psf -q --start true.h5 --lines lines.txt --trace-degree 4 -o again.h5 arc.h5
    h5table -q --csv -c XSHIFT,YSHIFT,X_ERR,Y_ERR -t /psffit/fibre again.h5 | awk -F, '
        NR > 1 { x = $1 / $3; y = $2 / $4; s += x * x + y * y; n += 2 } END { exit !(n > 0 && s < 2 * n) }'
    make_star_templates
    measure_stars 6 >measured
    # the mean of n stars is 0 +- 1/sqrt(n), chi squared n +- sqrt(2n); 12 stars
    awk '{ d = ($1 - $3) / $2; mean += d; s += d * d; n++; if (d * d > 16) far++ }
        END {
            printf "%d stars, mean %.2f, chi2 %.2f of (result - truth)/error\n", n, mean / n, s / n
            exit !(n >= 12 && !far && (mean / n) ^ 2 < 9 / n && s < n + 3 * sqrt(2 * n) && s > n - 3 * sqrt(2 * n))
        }' measured
}

@test "specx-sim: another camera" {
    fails_with 2 "*--camera: 'pitsch=4' should be KEY=VALUE,... with keys pitch gap *" specx-sim --camera pitsch=4 -o no.h5
    fails_with 2 "*--camera: 'pitch' should be KEY=VALUE,... with keys pitch gap *" specx-sim --camera pitch -o no.h5
    fails_with 2 '*--camera: width=99 should be from*' specx-sim --camera width=99 -o no.h5
    fails_with 2 '*--bundles*' specx-sim --bundles 4y2 -o no.h5
    fails_with 2 '*9 fibres: the bundles have 6*' specx-sim --bundles 3x2 --fibers 9 -o no.h5
    fails_with 2 '*--psf and --camera contradict*' specx-sim --psf x.fits --camera pitch=4 -o no.h5
    # mirrored is the same picture, from right to left
    specx-sim -q --bundles 1,2 --no-noise --cosmics 0 --bad-columns 0 -w 6400,6410 --flat -o a.h5
    specx-sim -q --bundles 1,2 --camera mirrored=1 --no-noise --cosmics 0 --bad-columns 0 -w 6400,6410 --flat -o b.h5
    h5check a.h5 b.h5
    h5dump -y -d /psf/bundle a.h5 | grep -q '0, 1, 1'
    for f in a b; do
        h5dump -y -d /psf/xtrace -s 0,0 -c 1,1 $f.h5 | grep -m 1 -o '^ *[0-9][0-9.]*$'
        h5dump -H -d /image/data $f.h5 | sed -n 's/.*SIMPLE { ( [0-9]*, \([0-9]*\) ).*/\1/p'
    done | tr '\n' ' ' | awk '{ d = $1 + $3 - ($2 - 1); exit !($2 == $4 && d * d < 1e-6) }'
}
