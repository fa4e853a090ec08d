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

# Two cameras of one spectrograph, each with a name and spots unlike DESI's: HR1, sigma 0.12 Angstrom, and LB1, 3, mirrored, whose
# wavelengths fall with the row; from images to velocities by reduce.mk.
two_cameras() {
    local c e
    declare -A camera=([HR1]='--camera dispersion=0.12,pitch=6 -w 6300,6400 --readnoise 5 --step 0.02'
        [LB1]='--camera dispersion=2.5,pitch=9,width=1.2,mirrored=1,falling=1 -w 5900,6900 --readnoise 2')
    mkdir in
    for c in HR1 LB1; do
        for e in 1 2 3; do
            # options are words
            # shellcheck disable=SC2046,SC2086
            specx-sim -q --arm r ${camera[$c]} --fibers 16 --throughput 0.1 --instrument-seed 3 --cosmics 1 --shift 0.05,-0.06 --seed 5 \
                --noise-seed $e --mjd 59198.45 --expid $e $(case $e in
                    1) echo --arc all --no-sky --psf-output in/psf_$c.fits ;;
                    2) echo --flat --lamp-level 20000 ;;
                    3) echo --sky-fibers 3 --standards 8 --tile 7 --fiber-scatter 0.02 --snr 60:120 --teff 5200:5800 --logg 3.7:4.3 \
                        --feh=-0.8:-0.2 --alpha 0 --vsini 0:4 --truth truth.h5 -f ;;
                esac) -o in/${c}_n1_000$e.fits
        done
        LC_ALL=C sed -i "s/CAMERA  = 'r0      '/CAMERA  = '$c     '/g" in/${c}_n1_*.fits in/psf_$c.fits
    done
    specx-sim -q --library lib -w 5750,7050 --step 0.02 --axis teff=5000,5500,6000 --axis logg=3.5,4,4.5 --axis feh=-1,-0.5,0 \
        --axis alpha=0
    fits2h5 -q lib -o lib.h5
    rm -r lib
    for c in templates:none continuum:median; do
        rvs-template -q --norm ${c#*:} --setup HR:6260:6440:0.06:FWHM=0.16 --setup LB:5850:6950:1:FWHM=3 -o ${c%:*}.h5 lib.h5
    done
    rm lib.h5
}

@test "two cameras of names and spots of their own, from images to velocities" {
    two_cameras
    make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.fits' PSFS='in/psf_CAM.fits' OUT=out ARMS='HR LB' \
        BINS_HR=6305,6395,0.16 BINS_LB=5920,6880,3 LINES_LB=none GROUP=exposure PAGE= -j2 >log 2>&1 || { cat log; false; }
    cat out/log/*
    h5check out/spectra-1-0003.h5 out/rv-0003.h5
    # sky lines of 0.06 Angstrom are half as wide as HR1's spots, whose widths have not changed
    h5dump -A 0 -y -w 1 -d /shift/width_y out/psf-HR1-0003.h5 | awk '/[}]/ { on = 0 } on && NF { w = $1 + 0; n++; far += w * w > 0.03 ^ 2 } /DATA [{]/ { on = 1 }
        END { print n, far; exit !(n == 144 && far == 0) }'
    h5table -q --csv -c FIBER,VRAD truth.h5 >truth.csv
    h5table -q --csv -c FIBER,VRAD,VRAD_ERR out/rv-0003.h5 | awk -F, 'NR == FNR { v[$1] = $2; next }
        FNR > 1 { d = ($2 - v[$1]) / $3; print d, $3; n++; s += d * d; e += $3 } END { print n, sqrt(s / n), e / n; exit !(n == 13 && s / n < 2.4 && e / n < 0.6) }' truth.csv -
    h5ls out/coadd-0003.h5/spectra | grep -c 'hr \|lb '
    specplot -q -k fit -s 0 -o fit.png out/rv-0003.h5 out/spectra-1-0003.h5
    h52fits -q -o s.fits out/spectra-1-0003.h5
    fits2h5 --list s.fits | grep HR_FLUX
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
