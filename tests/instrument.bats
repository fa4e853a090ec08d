# A made-up instrument from raw exposures to velocities, as specpipe-instrument(7) has it, whose examples tests/man.bats runs:
# bundles of unequal size, numbered from the right, wavelengths that fall with the row, four amplifiers, lamps of its own.
# SPX_BUNDLES=9,12,7,14,11,18,6,13,16,14 takes 120 fibres.

load common

bundles=${SPX_BUNDLES:-5,7,3}

camera=(--arm r --camera "pitch=6,gap=16,dispersion=0.8,width=1.25,mirrored=1,falling=1" --bundles "$bundles" -w "6100,6500"
    --instrument-seed 3)

expose() {
    specx-sim -q "${camera[@]}" --throughput 0.1 --raw amps=4,bias=3,gain=0.9 -o "$1.fits" "${@:2}"
    fits2h5 -q -o "raw-$1.h5" "$1.fits"
}

@test "a made-up instrument: velocities are right within their errors" {
    local name n=$((${bundles//,/+}))
    for name in 1 2 3; do
        expose "bias-$name" --bias --noise-seed "$name"
    done
    expose flat --flat --noise-seed 4
    printf 'Xx %s\n' 6060.24 6078.85 6121.37 6139.69 6188.11 6214.53 6231.74 6266.96 6301.42 6322.86 6351.21 6398.73 6419.35 \
        6437.51 6482.13 6523.68 6541.92 >lines.txt
    awk '{ printf "%.2f 0\n%.2f %.0f\n%.2f 0\n", $2 - .01, $2, 1e6 * (1 + NR % 5), $2 + .01 }' lines.txt >lamp.txt
    seq "$n" | sed 's/.*/lamp.txt/' >lamps
    expose arc --no-sky --noise-seed 5 lamps
    expose science --noise-seed 6 --snr 60:90 --teff 5200:5800 --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 \
        --truth truth.h5
    specx-preproc -q --combine bias -o bias.h5 raw-bias-*.h5
    for name in flat arc science; do
        specx-preproc -q --bias bias.h5 -o $name.h5 raw-$name.h5
    done
    specx-psf -q --flat flat.h5 --bundles "$bundles" --first-fiber right --centre 6300 --dispersion 0.8 --lines lines.txt \
        --trace-degree 4 -o psf.h5 arc.h5
    h5table -q --csv -c STATUS,CHI2,NLINE -t /psffit/fibre psf.h5 | awk -F, '
        NR > 1 && !(($1 == 0 || $1 == 4) && $2 > 0.8 && $2 < 1.2 && $3 >= 15) { print; exit 1 }'
    # the traces that were drawn: from there nothing moves, in errors of a line's place
    specx-sim -q "${camera[@]}" --no-noise --flat -o true.h5
    specx-psf -q --start true.h5 --lines lines.txt --trace-degree 4 -o again.h5 arc.h5
    h5table -q --csv -c XSHIFT,YSHIFT,X_ERR,Y_ERR -t /psffit/fibre again.h5 | awk -F, '
        NR > 1 { x = $1 / $3; y = $2 / $4; s += x * x + y * y; n += 2 } END { exit !(n > 0 && s < 2 * n) }'
    specx-extract -q -w 6110,6490,1.2 --variance model --reject 5 -o frame.h5 science.h5 psf.h5
    specx-extract -q -w 6110,6490,1.2 --variance model flat.h5 psf.h5 | specx-flat -q -o fiberflat.h5
    specx-sky -q --flat fiberflat.h5 -o sframe.h5 frame.h5
    specx-sim -q --library stars -w 6050,6550 --axis teff=5000,5500,6000 --axis logg=3.5,4,4.5 --axis feh=-1,-0.5,0 --axis alpha=0
    fits2h5 -q stars | rvs-template -q --setup r:6110:6491:0.4:FWHM=2.7 -o templates.h5
    rvs-fit -q --templates templates.h5 -o rv.h5 sframe.h5
    h5table -q --csv -c FIBER,VRAD truth.h5 >truth.csv
    # chi squared of n stars is n +- sqrt(2n); 12 or more stars. Templates of three nodes shift all velocities by 0.35 of an
    # error (0.8 km/s), with the PSF that was drawn, too
    h5table -q --csv -c FIBER,VRAD,VRAD_ERR rv.h5 | awk -F, '
        NR == FNR { v[$1] = $2; next }
        FNR > 1 { d = ($2 - v[$1]) / $3; mean += d; s += d * d; n++; if (d * d > 16) far++ }
        END {
            printf "%d stars, mean %.2f, chi2 %.2f of (result - truth)/error\n", n, mean / n, s / n
            exit !(n >= 12 && !far && (mean / n) ^ 2 < (3 / sqrt(n) + 0.35) ^ 2 && s < n + 3 * sqrt(2 * n) && s > n - 3 * sqrt(2 * n))
        }' truth.csv -
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
