# How well a fit fits: the flag, the probability, errors as large as the misfit.

load common

setup_file() {
    example_data
}

@test "variances in place of ivar, and other scales of it, are flagged" {
    local d=$BATS_FILE_TMPDIR/data n
    rvs-fit -q --templates "$d/templates.h5" "$d/frame-r0.h5" -o right.h5
    [ "$(h5table --csv -c RVS_WARN right.h5 | awk 'NR > 1 && int($1 / 256) % 2')" = '' ]
    # probable, for most: a star or two may suffer from the coarse grid of templates
    h5table --csv -c CHISQ_LOGP right.h5 | awk 'NR > 1 { n += $1 <= 0 && $1 > -3 } END { exit n < 4 }'
    # an ivar that is 25 times too large, and one that is 25 times too small
    for n in 0.04 25; do
        cp "$d/frame-r0.h5" f.h5
        h5edit f.h5 scale /frame/ivar "$n"
        rvs-fit --templates "$d/templates.h5" f.h5 -o x.h5 -f 2>log
        h5table --csv -c RVS_WARN x.h5 | awk 'NR > 1 && int($1 / 256) % 2 == 0 { print; bad = 1 } END { exit bad }'
        grep -q 'median chi2 a pixel .*256: 6' log
    done
}

@test "--scale-errors widens errors by the root of chi2 a degree of freedom, and never narrows them" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-r0.h5" f.h5
    h5edit f.h5 scale /frame/ivar 25
    rvs-fit -q --templates "$d/templates.h5" f.h5 -o plain.h5
    rvs-fit -q --scale-errors --templates "$d/templates.h5" f.h5 -o wide.h5
    # npoly 10 and six quantities less
    paste -d, <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR,CHISQ_TOT,NPIX_TOT plain.h5) \
        <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR wide.h5) | awk -F, '
        NR > 1 {
            s = sqrt($4 / ($5 - 16)); n++
            if (!(s > 3 && $6 == $1 && sqrt(($7 / $2 / s - 1) ^ 2) < 0.002 && sqrt(($8 / $3 / s - 1) ^ 2) < 0.002)) {
                print; bad = 1
            }
        }
        END { exit bad || n < 6 }'
    h5edit f.h5 scale /frame/ivar 0.0016
    rvs-fit -q --templates "$d/templates.h5" f.h5 -o a.h5
    rvs-fit -q --scale-errors --templates "$d/templates.h5" f.h5 -o b.h5
    cmp <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR a.h5) <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR b.h5)
}

# flagged BIT FILE: number of stars of a fit that have this bit.
flagged() {
    h5table --csv -c RVS_WARN "$2" | awk -v bit="$1" 'NR > 1 && int($1 / bit) % 2 { n++ } END { print n + 0 }'
}

@test "light of the wrong sign is flagged, faint and empty spectra are not" {
    local d=$BATS_FILE_TMPDIR/data sn
    cp "$d/frame-r0.h5" f.h5
    h5edit f.h5 scale /frame/flux -1
    rvs-fit --templates "$d/templates.h5" f.h5 -o x.h5 2>log
    [ "$(flagged 512 x.h5)" -eq 6 ]
    grep -q 'RVS_WARN bits.* 512: 6' log
    rvs-fit -q --all-fibers --templates "$d/templates.h5" "$d/frame-r0.h5" -o right.h5
    [ "$(flagged 512 right.h5)" -eq 0 ]
    for sn in 0.3 2; do
        specx-sim -q --arm r --fibers 8 --sky-fibers 2 --no-sky --wavelength 6400,6600 --snr $sn -o faint.h5 -f
        specx-extract -q -w 6400,6600,0.8 faint.h5 -f -o faint-frame.h5
        rvs-fit -q --all-fibers --templates "$d/templates.h5" faint-frame.h5 -f -o x.h5
        [ "$(flagged 512 x.h5)" -eq 0 ]
    done
}

@test "exposures that cannot be one star are flagged, those of one star are not" {
    local n d=$BATS_FILE_TMPDIR/data
    for n in 1 2; do
        specx-sim -q --arm r --fibers 8 --sky-fibers 0 --no-sky --wavelength 6400,6600 --snr 50 --teff 5200:5800 \
            --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 --noise-seed $n --mjd 5900$n.2 --expid $n -o image.h5 -f
        specx-extract -q -w 6400,6600,0.8 image.h5 -o f$n.h5
    done
    rvs-fit -q --joint target --templates "$d/templates.h5" f1.h5 f2.h5 -o one.h5
    [ "$(flagged 1024 one.h5)" -eq 0 ]
    # exposures of other stars, all as one: velocities differ by up to 600 km/s
    rvs-fit --joint all --templates "$d/templates.h5" f1.h5 f2.h5 -o all.h5 2>log
    [ "$(flagged 1024 all.h5)" -eq 1 ]
    grep -q 'RVS_WARN bits.* 1024: 1' log
    # a single exposure has nothing to disagree with
    rvs-fit -q --joint target --templates "$d/templates.h5" f1.h5 -o single.h5
    [ "$(flagged 1024 single.h5)" -eq 0 ]
}
